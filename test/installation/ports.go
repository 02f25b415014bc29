package installation

import (
	"fmt"
	"net"
)

// FreeAddresses gives addresses of loopback that nobody listens at, for programs that must find theirs again after a restart.
func FreeAddresses(count int) ([]string, error) {
	addresses := make([]string, count)
	for i := range addresses {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close()
		addresses[i] = listener.Addr().String()
	}
	return addresses, nil
}
