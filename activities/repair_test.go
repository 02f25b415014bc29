package activities_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// portioned is a Source that notes how much is asked of it at once.
type portioned struct {
	activities.Source
	refs []int
}

func (p *portioned) Get(ctx context.Context, guard activities.Guard, refs []activities.Ref) ([]activities.Entry, error) {
	p.refs = append(p.refs, len(refs))
	return p.Source.Get(ctx, guard, refs)
}

func TestVerifyEntries_WithMuchToRepair_HoldsAPortionAtATime(t *testing.T) {
	for name, test := range map[string]struct {
		late, bytes int
		refs        []int
	}{
		"many small entries": {2_345, 10, []int{1_000, 1_000, 345}},
		"a few large ones":   {20, 1 << 20, []int{8, 8, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			asked := &portioned{Source: activities.NewOrigin(p.origin.store)}
			p.destination.Dialer = direct{asked}
			p.fill(t)
			for i := range test.late {
				p.origin.put(t, fmt.Sprintf("/registry/core/configmaps/%s/default/late-%04d", tenant, i), strings.Repeat("x", test.bytes))
			}

			round := p.verify(t, first)
			require.False(t, round.Match)
			require.Equal(t, test.late, round.RepairedPuts)
			require.Equal(t, test.refs, asked.refs)
			require.True(t, p.verify(t, first.Next()).Match)
		})
	}
}
