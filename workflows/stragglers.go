package workflows

import (
	"slices"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// stragglersNamed bounds what the result and the status name: both travel in one payload, of which Temporal takes 2 MB. Every
// straggler is in the history, in the results of the activities that found it and looked after it.
const stragglersNamed = 200

// fate is what the last look after a straggler came to, for when its entry is told again or written once more. It is kept out of the status,
// however many there are.
type fate struct {
	// lookedAt is the origin's revision of the write.
	lookedAt int64
	// carriedAt is the destination's revision of the write that carried one, 0 where none was.
	carriedAt int64
}

// unaccounted leaves out what was looked after already.
func (m *migration) unaccounted(found []activities.Straggler) []activities.Straggler {
	return slices.DeleteFunc(found, func(straggler activities.Straggler) bool {
		known, looked := m.fates[straggler.Ref]
		return looked && straggler.OriginRevision <= known.lookedAt
	})
}

// account counts a straggler whose fate is settled, and names it if there is room.
func (m *migration) account(straggler activities.Straggler) {
	known := m.fates[straggler.Ref]
	m.fates[straggler.Ref] = fate{
		lookedAt:  max(known.lookedAt, straggler.OriginRevision),
		carriedAt: max(known.carriedAt, straggler.DestinationRevision),
	}
	counts := &m.status.StragglerCounts
	switch {
	case straggler.Carried:
		counts.Carried++
	case straggler.Discarded:
		counts.Discarded++
	default:
		counts.NotCarried++
	}
	m.name(straggler)
}

// name prefers what a person has to look at.
func (m *migration) name(straggler activities.Straggler) {
	named := &m.status.Stragglers
	if len(*named) == stragglersNamed {
		settled := slices.IndexFunc(*named, isSettled)
		if settled < 0 || isSettled(straggler) {
			return
		}
		*named = slices.Delete(*named, settled, settled+1)
	}
	*named = append(*named, straggler)
}

func isSettled(straggler activities.Straggler) bool { return straggler.Carried || straggler.Discarded }

// accountForDeletions names what others deleted at the origin, and says where nobody can know it.
func (m *migration) accountForDeletions(swept *activities.DeleteResult) {
	for _, gone := range swept.Gone {
		m.status.StragglerCounts.NotCarried++
		m.name(gone)
	}
	m.status.StragglerCounts.NotCarried += swept.MoreGone
	if swept.DeletionsUnknown {
		m.warn("DeletionsUnknown: the etcd of shard %[1]s has compacted what was there when both shards were compared (revision %[2]d). Whether requests that were let in before the fence "+
			"deleted entries there after that cannot be known; such entries are still on shard %[3]s. Compare: look in the audit logs of shard %[1]s's API servers for deletions in logical cluster %[4]s "+
			"that ended after the fence, and repeat on shard %[3]s those whose entry is still there",
			m.status.OriginShard, m.verified.OriginRevision, m.status.DestinationShard, m.status.LogicalCluster)
	}
}
