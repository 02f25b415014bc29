package activities_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// moved is a pair whose move has committed.
func moved(t *testing.T) (p pair, carry activities.CarryInput) {
	p = newPair(t)
	p.fill(t)
	verified := p.verify(t, first)
	committed := p.commit(t)
	return p, activities.CarryInput{
		Guard: activities.Guard{LogicalCluster: tenant, Token: first.Next().Next()}, Origin: p.ref,
		VerifiedRevision: verified.OriginRevision, CommitRevision: committed.Revision,
	}
}

// putMany writes ConfigMaps, as many as etcd takes in one Txn: they all get one revision.
func (s *shard) putMany(t *testing.T, from, to int, value string) {
	for from < to {
		var puts []clientv3.Op
		for end := min(from+100, to); from < end; from++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("/registry/core/configmaps/%s/late/%05d", tenant, from), value))
		}
		_, err := s.client.Txn(t.Context()).Then(puts...).Commit()
		require.NoError(t, err)
	}
}

// smallerThan keeps within what Temporal warns of.
func smallerThan(t *testing.T, limit int, payloads ...any) {
	for _, payload := range payloads {
		encoded, err := json.Marshal(payload)
		require.NoError(t, err)
		require.Less(t, len(encoded), limit)
	}
}

// The first 3,000 in the order of keys cannot be carried, and stay; they must not hide those behind them.
func TestStragglers_ByTheThousands_AreEachToldOnce_AndCarriedWhereTheyCanBe(t *testing.T) {
	const all, kept = 5_000, 3_000
	p, carry := moved(t)
	p.origin.putMany(t, 0, all, "late")
	p.destination.putMany(t, 0, kept, "tenant's own")
	told, carried := map[activities.Ref]int{}, 0
	sweep := activities.DeleteInput{Guard: fenced, Revision: carry.VerifiedRevision}
	for more := true; more; {
		swept, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, sweep)
		require.NoError(t, err)
		require.Greater(t, swept.Accounted, sweep.Accounted)
		more, sweep.Accounted, carry.Stragglers = swept.More > 0, swept.Accounted, swept.Stragglers
		fates, err := perform[activities.CarryResult](t, p.destination, p.destination.CarryStragglers, carry)
		require.NoError(t, err)
		for _, straggler := range fates.Stragglers {
			told[straggler.Ref]++
			if straggler.Carried {
				carried++
			}
		}
		smallerThan(t, 512<<10, swept, carry, fates)
		require.NoError(t, attempt(t, p.origin, p.origin.DropCarried, activities.DropCarriedInput{Guard: fenced, Stragglers: fates.Stragglers}))
	}

	require.Len(t, told, all)
	for ref, times := range told {
		require.Equal(t, 1, times, ref)
	}
	require.Equal(t, all-kept, carried)
	late := "/registry/core/configmaps/" + tenant + "/late/"
	require.Len(t, p.origin.export(t, late), kept, "what could not be carried is left")
	values := map[string]int{}
	for _, value := range p.destination.export(t, late) {
		values[value]++
	}
	require.Equal(t, map[string]int{"tenant's own": kept, "late": all - kept}, values)
}

func TestDeleteOriginEntries_OfOneTxn_AreToldTogether(t *testing.T) {
	p, carry := moved(t)
	p.origin.putMany(t, 0, 450, "late")
	p.origin.putMany(t, 450, 550, "late") // with the 500th among them
	p.origin.putMany(t, 550, 560, "late")

	swept, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: carry.VerifiedRevision})

	require.NoError(t, err)
	require.Len(t, swept.Stragglers, 550)
	require.Equal(t, 10, swept.More)
	require.Equal(t, swept.Stragglers[549].OriginRevision, swept.Accounted)
}

func TestDeleteOriginEntries_OfWhatOthersDeleted_NamesSomeAndCountsTheRest(t *testing.T) {
	p := newPair(t)
	p.origin.putMany(t, 0, 300, "kept")
	p.fill(t)
	verified := p.verify(t, first)
	p.commit(t)
	_, err := p.origin.client.Delete(t.Context(), "/registry/core/configmaps/"+tenant+"/late/", clientv3.WithPrefix())
	require.NoError(t, err)
	input := activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision}

	swept, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, input)
	require.NoError(t, err)
	require.Empty(t, swept.Stragglers)
	require.Len(t, swept.Gone, 200)
	require.Equal(t, 100, swept.MoreGone)
	require.Contains(t, swept.Gone[0].Reason, "not carried")
	require.False(t, swept.DeletionsUnknown)

	input.Accounted = swept.Accounted
	again, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, input)
	require.NoError(t, err)
	require.Empty(t, again.Gone)
	require.Zero(t, again.MoreGone)
}

func TestDeleteOriginEntries_WhenTheVerifiedRevisionIsCompacted_SaysWhatItCannotTell(t *testing.T) {
	p, carry := moved(t)
	_, err := p.origin.client.Delete(t.Context(), "/registry/core/configmaps/"+tenant+"/default/one")
	require.NoError(t, err)
	p.origin.put(t, "/registry/core/configmaps/"+tenant+"/default/two", "late")
	_, err = p.origin.client.Compact(t.Context(), p.revision(t))
	require.NoError(t, err)
	input := activities.DeleteInput{Guard: fenced, Revision: carry.VerifiedRevision}

	swept, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, input)
	require.NoError(t, err)
	require.True(t, swept.DeletionsUnknown)
	require.Positive(t, swept.Deleted)
	require.Len(t, swept.Stragglers, 1, "all else is told")

	input.Accounted = swept.Accounted
	again, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, input)
	require.NoError(t, err)
	require.False(t, again.DeletionsUnknown, "it was told once")
}

// A suffix, a group and a segment as long as they can be.
func TestDeleteOriginEntries_OfTheLongestNames_FitsAPayload(t *testing.T) {
	p, carry := moved(t)
	family := "/registry/" + strings.Repeat("g", 60) + "/" + strings.Repeat("r", 60) + "/" + strings.Repeat("f", 64) + "/" + tenant + "/" + strings.Repeat("n", 63) + "/"
	for i := range 501 {
		p.origin.put(t, family+fmt.Sprintf("%s%03d", strings.Repeat("x", 250), i), "late")
	}

	swept, err := perform[activities.DeleteResult](t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: carry.VerifiedRevision})

	require.NoError(t, err)
	require.Len(t, swept.Stragglers, 500)
	carry.Stragglers = swept.Stragglers
	fates, err := perform[activities.CarryResult](t, p.destination, p.destination.CarryStragglers, carry)
	require.NoError(t, err)
	smallerThan(t, 512<<10, swept, carry, fates)
}
