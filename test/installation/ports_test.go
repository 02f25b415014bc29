package installation

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFreeAddresses_GivesEachOnce_AndNoneThatIsListenedAt(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		addresses, err := FreeAddresses(6)
		require.NoError(t, err)
		require.Len(t, addresses, 6)
		for _, address := range addresses {
			require.False(t, seen[address], address)
			seen[address] = true
			listener, err := net.Listen("tcp", address)
			require.NoError(t, err)
			defer listener.Close()
		}
	}
}

func TestFreeAddresses_MoreThanThereAre_IsAnError(t *testing.T) {
	_, err := new(pool).take(portCount + 1)
	require.ErrorContains(t, err, "free ports")
}
