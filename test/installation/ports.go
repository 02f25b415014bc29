package installation

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Systems hand out other ports by themselves, to who connects and to who listens at port 0: Linux from 32768 on, others from 49152
// on. One of those would not stay free until its program has started, or has started again.
const (
	firstPort = 20_000
	portCount = 12_000
)

// FreeAddresses gives addresses of loopback that nobody listens at, each once, for programs that must find theirs again after a restart.
func FreeAddresses(count int) ([]string, error) { return ports.take(count) }

var ports pool

// pool remembers the ports that it has given.
type pool struct{ given sync.Map }

func (p *pool) take(count int) ([]string, error) {
	addresses := make([]string, 0, count)
	for _, offset := range rand.Perm(portCount) {
		if len(addresses) == count {
			break
		}
		port := firstPort + offset
		if _, taken := p.given.LoadOrStore(port, true); taken {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue // somebody listens there
		}
		addresses = append(addresses, listener.Addr().String())
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("free %s again: %w", listener.Addr(), err)
		}
	}
	if len(addresses) < count {
		return nil, fmt.Errorf("find %d free ports from %d to %d: there are %d", count, firstPort, firstPort+portCount-1, len(addresses))
	}
	return addresses, nil
}
