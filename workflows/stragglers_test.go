package workflows_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// backlog is an origin with so many late writes that one sweep does not tell them all.
type backlog struct {
	left []activities.Straggler // at the origin, the oldest first
	// carriable says whether the destination takes one.
	carriable func(activities.Straggler) bool
	carried   int
	looks     map[activities.Ref]int
	revision  int64
	// busy writes as many again before each sweep.
	busy int
}

const toldAtOnce = 500

func newBacklog(count int, carriable func(activities.Straggler) bool) *backlog {
	b := &backlog{carriable: carriable, looks: map[activities.Ref]int{}, revision: 9_200}
	b.write(count)
	return b
}

func (b *backlog) write(count int) {
	for range count {
		b.revision++
		suffix := fmt.Sprintf("%s/late-%d", strings.Repeat("n", 63), b.revision)
		b.left = append(b.left, activities.Straggler{
			Ref:            activities.Ref{Family: keyspace.Family{Group: "wild.west", Resource: "cowboys", Segment: strings.Repeat("f", 64)}, Suffix: suffix},
			OriginRevision: b.revision,
		})
	}
}

func (b *backlog) tell(result *activities.DeleteResult, accounted int64) {
	b.write(b.busy)
	late := slices.DeleteFunc(slices.Clone(b.left), func(found activities.Straggler) bool { return found.OriginRevision <= accounted })
	end := min(len(late), toldAtOnce)
	result.Revision, result.Accounted = b.revision, b.revision
	result.Stragglers, result.More = late[:end], len(late)-end
	if result.More > 0 {
		result.Accounted = late[end-1].OriginRevision
	}
}

func (b *backlog) carry(straggler activities.Straggler) bool {
	b.looks[straggler.Ref]++
	if b.carriable(straggler) {
		b.carried++
		return true
	}
	return false
}

func (b *backlog) drop(carried []activities.Straggler) {
	gone := map[activities.Ref]bool{}
	for _, straggler := range carried {
		gone[straggler.Ref] = true
	}
	b.left = slices.DeleteFunc(b.left, func(found activities.Straggler) bool { return gone[found.Ref] })
}

// The first 2,500 can not be carried, which must not hide those behind them.
func TestMigrate_ThousandsOfStragglers_AreAllLookedAfterOnceAndCounted(t *testing.T) {
	w := newWorld(t)
	w.backlog = newBacklog(5_000, func(straggler activities.Straggler) bool { return straggler.OriginRevision > 9_200+2_500 })
	w.move(usualInput)

	result := w.result()
	require.Equal(t, workflows.StragglerCounts{Carried: 2_500, NotCarried: 2_500}, result.StragglerCounts)
	require.Equal(t, 2_500, w.backlog.carried)
	require.Len(t, w.backlog.left, 2_500, "what was not carried is left at the origin")
	require.Len(t, w.backlog.looks, 5_000)
	for ref, looks := range w.backlog.looks {
		require.Equal(t, 1, looks, ref)
	}
	require.Len(t, result.Stragglers, 200)
	for _, straggler := range result.Stragglers {
		require.False(t, straggler.Carried, "those are named that a person must know")
	}
	require.Less(t, sizeOf(t, w.status()), 256<<10)
	require.Empty(t, result.Warnings)
	w.arrived()
}

func sizeOf(t *testing.T, payload any) int {
	encoded, err := json.Marshal(payload)
	require.NoError(t, err)
	return len(encoded)
}

func TestMigrate_StragglersNamed_AreThoseNotCarriedEvenWhenTheyCameLast(t *testing.T) {
	w := newWorld(t)
	w.backlog = newBacklog(1_000, func(straggler activities.Straggler) bool { return straggler.OriginRevision <= 9_200+997 })
	w.move(usualInput)

	result := w.result()
	require.Equal(t, workflows.StragglerCounts{Carried: 997, NotCarried: 3}, result.StragglerCounts)
	require.Len(t, result.Stragglers, 200)
	require.Len(t, slices.DeleteFunc(slices.Clone(result.Stragglers), func(straggler activities.Straggler) bool { return straggler.Carried }), 3)
}

func TestMigrate_StragglersWrittenFasterThanTheyAreCarried_ComeToAnEnd(t *testing.T) {
	w := newWorld(t)
	w.backlog = newBacklog(100, func(activities.Straggler) bool { return true })
	w.backlog.busy = 2 * toldAtOnce
	w.move(usualInput)

	result := w.result()
	require.Contains(t, strings.Join(result.Warnings, "\n"), "entries are still being written on shard root")
	require.Equal(t, w.backlog.carried, result.StragglerCounts.Carried)
	require.Positive(t, result.StragglerCounts.Carried)
	require.Positive(t, result.StragglerCounts.NotCarried)
	w.arrived()
}

func TestMigrate_DeletionsByOthers_AreNamedAndCountedOnce(t *testing.T) {
	w := newWorld(t)
	gone := activities.Straggler{Ref: activities.Ref{Family: keyspace.Family{Group: "core", Resource: "secrets"}, Suffix: "default/gone"}, Deleted: true}
	w.gone = []activities.Straggler{gone}
	w.moreGone = 7
	w.move(usualInput)

	require.Equal(t, w.gone, w.result().Stragglers)
	require.Equal(t, workflows.StragglerCounts{NotCarried: 8}, w.result().StragglerCounts)
	require.Empty(t, w.result().Warnings)
}

func TestMigrate_DeletionsThatCannotBeTold_AreWarnedOfOnce(t *testing.T) {
	w := newWorld(t)
	w.compacted = true
	w.move(usualInput)

	require.Equal(t, workflows.Completed, w.result().Phase)
	require.Len(t, w.result().Warnings, 1)
	for _, says := range []string{"DeletionsUnknown", "shard root", "revision 9150", "Compare", "audit logs"} {
		require.Contains(t, w.result().Warnings[0], says)
	}
}
