// Package ports finds TCP ports on loopback and tells whether one is taken.
package ports

import (
	"errors"
	"fmt"
	"net"
	"strconv"
)

// Loopback is the only address that anything here listens on.
const Loopback = "127.0.0.1"

// Address is host:port of a port on loopback.
func Address(port int) string { return net.JoinHostPort(Loopback, strconv.Itoa(port)) }

// Free gives a port that nobody listens on.
//
// The connection that is accepted and closed leaves the port in TIME_WAIT, so that
// Linux hands it to nobody who asks for any port during the next minute, while
// listening on it by number still works.
func Free() (port int, err error) {
	listener, err := net.Listen("tcp", Address(0))
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { err = errors.Join(err, listener.Close()) }()

	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("reserve a free port: %w", err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	accepted, err := listener.Accept()
	if err != nil {
		return 0, fmt.Errorf("reserve a free port: %w", err)
	}
	return listener.Addr().(*net.TCPAddr).Port, accepted.Close()
}

// FreeSeveral gives so many different ports that nobody listens on.
func FreeSeveral(count int) ([]int, error) {
	found := make([]int, 0, count)
	for range count {
		port, err := Free()
		if err != nil {
			return nil, err
		}
		found = append(found, port)
	}
	return found, nil
}

// Check tells whether a port can be listened on now.
func Check(port int) error {
	listener, err := net.Listen("tcp", Address(port))
	if err != nil {
		return err
	}
	return listener.Close()
}
