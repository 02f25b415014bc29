package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// span is a half-open range of keys.
type span struct{ from, to string }

func prefixSpan(prefix string) span {
	return span{from: prefix, to: clientv3.GetPrefixRangeEnd(prefix)}
}

// resources remembers which parts of the shard's key space hold keys, from one discovery to the next.
//
// A discovery then looks only into the gaps between them, all at once. That is no mere saving of
// round trips: to answer "the first key of a range" etcd counts the whole range (its index is walked
// for RangeResponse.count), so looking for the next resource in the rest of the shard costs as much
// as the shard is large, while looking into an empty gap costs nothing.
// What is remembered only says where not to look for something new, so it cannot be outdated.
type resources struct {
	mutex sync.Mutex
	spans []span
}

func (r *resources) known() []span {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.spans)
}

func (r *resources) remember(found []span) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.spans = append(r.spans, found...)
	slices.SortFunc(r.spans, func(a, b span) int { return strings.Compare(a.from, b.from) })
	r.spans = slices.Compact(r.spans)
}

// expect has discoveries look for a key's family without a search. Where a move writes hundreds of resources that the shard had
// no keys of, each would take the next discovery a round trip, in the tenant's time away.
func (s *Store) expect(key string) {
	resource := s.resourceOf(key)
	for _, known := range s.resources.known() {
		if known.from <= resource.from && resource.to <= known.to {
			return
		}
	}
	s.resources.remember([]span{resource})
}

// discover finds the families in which a logical cluster has keys, its LogicalCluster's family included,
// at a revision (0: now), sorted by their names. It reads some hundred keys whatever the shard holds.
func (s *Store) discover(ctx context.Context, logicalCluster string, revision int64) ([]keyspace.Family, error) {
	if !keyspace.IsLogicalClusterName(logicalCluster) {
		return nil, fmt.Errorf("discover families: %q is not a logical cluster's name", logicalCluster)
	}
	candidates, err := s.families(ctx, revision)
	if err != nil {
		return nil, fmt.Errorf("discover families of logical cluster %s: %w", logicalCluster, err)
	}
	spans := make([]span, len(candidates))
	for i, family := range candidates {
		spans[i] = prefixSpan(s.layout.FamilyPrefix(family, logicalCluster))
	}
	firstKeys, err := s.firstKeys(ctx, spans, revision)
	if err != nil {
		return nil, fmt.Errorf("discover families of logical cluster %s: %w", logicalCluster, err)
	}
	var present []keyspace.Family
	for i, family := range candidates {
		if firstKeys[i] != "" {
			present = append(present, family)
		}
	}
	slices.SortFunc(present, compareFamilies)
	return present, nil
}

func compareFamilies(a, b keyspace.Family) int { return strings.Compare(a.String(), b.String()) }

// families gives every family of the shard, whosever keys are in it.
func (s *Store) families(ctx context.Context, revision int64) ([]keyspace.Family, error) {
	known := s.resources.known()
	found, err := s.searchGaps(ctx, gaps(known, prefixSpan(s.layout.Prefix())), revision)
	if err != nil {
		return nil, err
	}
	s.resources.remember(found)

	var families []keyspace.Family
	for _, resource := range append(known, found...) {
		families = append(families, s.familiesIn(resource)...)
	}
	return families, nil
}

// gaps are the parts of whole that none of the sorted spans covers.
func gaps(spans []span, whole span) []span {
	var gaps []span
	from := whole.from
	for _, covered := range spans {
		if from < covered.from {
			gaps = append(gaps, span{from: from, to: covered.from})
		}
		from = max(from, covered.to)
	}
	if from < whole.to {
		gaps = append(gaps, span{from: from, to: whole.to})
	}
	return gaps
}

// searchGaps looks for keys in the gaps, and behind each resource found again, until there are none left.
func (s *Store) searchGaps(ctx context.Context, gaps []span, revision int64) ([]span, error) {
	var found []span
	for len(gaps) > 0 {
		firstKeys, err := s.firstKeys(ctx, gaps, revision)
		if err != nil {
			return nil, err
		}
		var rest []span
		for i, gap := range gaps {
			if firstKeys[i] == "" {
				continue
			}
			resource := s.resourceOf(firstKeys[i])
			found = append(found, resource)
			if resource.to < gap.to {
				rest = append(rest, span{from: resource.to, to: gap.to})
			}
		}
		gaps = rest
	}
	return found, nil
}

// resourceOf gives the part of the key space to which the key that comes first in it belongs.
// For a custom resource that is one identity or "customresources". A built-in resource is taken as a
// whole: no APIExport can export it, so no identity hides among its logical clusters, which are too
// many to look between. A key that is no resource's (masterleases/<address>) stands for itself.
func (s *Store) resourceOf(key string) span {
	parts := strings.SplitN(strings.TrimPrefix(key, s.layout.Prefix()), "/", 4)
	if len(parts) < 3 {
		return span{from: key, to: key + "\x00"}
	}
	resource := s.layout.ResourcePrefix(parts[0], parts[1])
	if len(parts) == 4 && (parts[2] == keyspace.CustomResources || keyspace.IsIdentity(parts[2])) {
		return prefixSpan(resource + parts[2] + "/")
	}
	return prefixSpan(resource)
}

func (s *Store) familiesIn(resource span) []keyspace.Family {
	parts := strings.Split(strings.TrimPrefix(resource.from, s.layout.Prefix()), "/")
	switch len(parts) {
	case 4: // <group>/<resource>/<segment>/
		return []keyspace.Family{{Group: parts[0], Resource: parts[1], Segment: parts[2]}}
	case 3: // <group>/<resource>/
		return []keyspace.Family{
			{Group: parts[0], Resource: parts[1]},
			{Group: parts[0], Resource: parts[1], Segment: keyspace.CustomResources},
		}
	default:
		return nil
	}
}

// firstKeys gives the first key in each span, "" where there is none, in as few requests as the server allows.
func (s *Store) firstKeys(ctx context.Context, spans []span, revision int64) ([]string, error) {
	keys := make([]string, 0, len(spans))
	for len(spans) > 0 {
		batch := spans[:min(len(spans), s.limits.maxOps())]
		response, err := s.client.Txn(ctx).Then(firstKeyOps(batch, revision)...).Commit()
		if err != nil && s.limits.learn(err, len(batch), 0) {
			continue
		}
		if err != nil {
			return nil, translate(err)
		}
		for _, answer := range response.Responses {
			key := ""
			if found := answer.GetResponseRange().Kvs; len(found) > 0 {
				key = string(found[0].Key)
			}
			keys = append(keys, key)
		}
		spans = spans[len(batch):]
	}
	return keys, nil
}

func firstKeyOps(spans []span, revision int64) []clientv3.Op {
	ops := make([]clientv3.Op, len(spans))
	for i, span := range spans {
		ops[i] = clientv3.OpGet(span.from, clientv3.WithRange(span.to), clientv3.WithLimit(1),
			clientv3.WithKeysOnly(), clientv3.WithRev(revision))
	}
	return ops
}
