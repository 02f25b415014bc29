package activities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

func FuzzToken(f *testing.F) {
	f.Add("run/1", "run/2")
	f.Add("run", "")
	f.Add("/1", "/2")
	f.Add("run/1/2", "run/x")
	f.Add("run/-1", "run/9223372036854775807")
	f.Fuzz(func(t *testing.T, one, other string) {
		a, b := activities.Token(one), activities.Token(other)
		require.Equal(t, a.SameRun(b), b.SameRun(a))
		require.False(t, activities.Token("").SameRun(a), "no token is nobody's")
		if a.Run() == "" {
			require.False(t, a.SameRun(b))
			return
		}
		require.True(t, a.Next().SameRun(a))
		require.GreaterOrEqual(t, a.Number(), 0)
		if a.Number() < 1<<30 {
			require.Equal(t, a.Number()+1, a.Next().Number())
		}
	})
}
