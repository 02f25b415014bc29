package main

import (
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is how long a test waits to see that nothing comes.
const patience = 50 * time.Millisecond

func TestProxy_PassesOnWhatComes(t *testing.T) {
	_, client := connect(t)
	requireEcho(t, client)
}

func TestProxy_WhenItDrops_ResetsConnectionsAndRefusesNewOnes(t *testing.T) {
	proxy, client := connect(t)
	requireEcho(t, client)

	proxy.set(dropping)

	_, err := client.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF, "a reset is no proper end")
	another, err := net.Dial("tcp", proxy.address())
	if err == nil { // else the reset came as early as that
		_, err = another.Read(make([]byte, 1))
	}
	require.Error(t, err)

	proxy.set(sound)
	healed, err := net.Dial("tcp", proxy.address())
	require.NoError(t, err)
	requireEcho(t, healed)
}

func TestProxy_WhileItHangs_LetsNothingThroughAndLosesNothing(t *testing.T) {
	proxy, client := connect(t)
	proxy.set(hanging)
	_, err := client.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, client.SetReadDeadline(time.Now().Add(patience)))
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)

	require.NoError(t, client.SetReadDeadline(time.Time{}))
	proxy.set(sound)

	_, err = client.Read(make([]byte, 1))
	require.NoError(t, err)
}

func TestProxy_WhenItDelays_PassesOnLater(t *testing.T) {
	proxy, client := connect(t)
	proxy.set(delaying)
	started := time.Now()
	requireEcho(t, client)
	require.GreaterOrEqual(t, time.Since(started), delayedBy)
}

func TestProxy_WhenItHalfCloses_TellsTheTargetThatAllIsSaid(t *testing.T) {
	proxy, client := connect(t)
	requireEcho(t, client)

	proxy.halfClose()

	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the target ends what it was told is over")
}

// connect gives a connection to an echo server through a proxy.
func connect(t *testing.T) (*proxy, net.Conn) {
	t.Helper()
	server, err := net.Listen("tcp", local(0))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	go func() {
		for {
			connection, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(connection, connection) // whatever ends it is the test's doing
				_ = connection.Close()
			}()
		}
	}()
	proxy, err := startProxy(server.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.close()) })
	client, err := net.Dial("tcp", proxy.address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return proxy, client
}

func requireEcho(t *testing.T, connection net.Conn) {
	t.Helper()
	_, err := connection.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(connection, make([]byte, 1))
	require.NoError(t, err)
}
