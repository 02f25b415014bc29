package etcd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNextKeysPage_GrowsWhileEtcdIsQuick_AndShrinksWhereItIsSlow(t *testing.T) {
	require.Equal(t, 2*leastKeysPage, nextKeysPage(leastKeysPage, time.Millisecond))
	require.Equal(t, mostKeysPage, nextKeysPage(mostKeysPage, time.Millisecond))
	require.Equal(t, 500, nextKeysPage(500, 15*time.Millisecond))
	require.Equal(t, 250, nextKeysPage(500, time.Second))
	require.Equal(t, leastKeysPage, nextKeysPage(leastKeysPage, time.Minute))
}
