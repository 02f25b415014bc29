package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"golang.org/x/sync/errgroup"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// shardCopy is one side of a comparison.
type shardCopy struct {
	shard string
	activities.Reader
}

// comparison is how two copies of a logical cluster differ.
type comparison struct {
	LogicalCluster   string `json:"logicalCluster"`
	OriginShard      string `json:"originShard"`
	DestinationShard string `json:"destinationShard"`
	Equal            bool   `json:"equal"`
	// Entries, Bytes and SHA256 are the origin's.
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
	// Missing are at the origin alone, Extra at the destination alone, Different at both.
	Missing   []activities.Ref `json:"missing,omitempty"`
	Different []activities.Ref `json:"different,omitempty"`
	Extra     []activities.Ref `json:"extra,omitempty"`
}

// requireEither refuses a logical cluster that neither shard has a key of: two nothings are equal.
func requireEither(ctx context.Context, logicalCluster string, copies ...shardCopy) error {
	var shards []string
	for _, one := range copies {
		keys, err := one.Keys(ctx, logicalCluster, 1)
		if err != nil {
			return fmt.Errorf("list keys of %s on shard %s: %w", logicalCluster, one.shard, err)
		}
		if len(keys) > 0 {
			return nil
		}
		shards = append(shards, one.shard)
	}
	return activities.Refuse(activities.LogicalClusterNotFound,
		"no key of logical cluster %s on shards %s; give its name, or its workspace path like root:org:ws", logicalCluster, strings.Join(shards, " and "))
}

// compare looks at digests first, and at single entries only where those differ.
func compare(ctx context.Context, logicalCluster string, origin, destination shardCopy) (*comparison, error) {
	var originDigest, destinationDigest activities.Digest
	err := both(
		func() (err error) { originDigest, err = origin.digest(ctx, logicalCluster); return err },
		func() (err error) { destinationDigest, err = destination.digest(ctx, logicalCluster); return err })
	if err != nil {
		return nil, err
	}
	result := &comparison{
		LogicalCluster: logicalCluster, OriginShard: origin.shard, DestinationShard: destination.shard, SHA256: originDigest.SHA256(),
	}
	result.Entries, result.Bytes = originDigest.Totals()
	families := activities.DifferingFamilies(originDigest, destinationDigest)
	if len(families) == 0 {
		result.Equal = true
		return result, nil
	}
	var wanted, present []activities.Listed
	err = both(
		func() (err error) {
			wanted, err = origin.list(ctx, logicalCluster, families, originDigest.Revision)
			return err
		},
		func() (err error) {
			present, err = destination.list(ctx, logicalCluster, families, destinationDigest.Revision)
			return err
		})
	if err != nil {
		return nil, err
	}
	result.tell(wanted, present)
	return result, nil
}

func both(one, other func() error) error {
	var group errgroup.Group
	group.Go(one)
	group.Go(other)
	return group.Wait()
}

func (c shardCopy) digest(ctx context.Context, logicalCluster string) (activities.Digest, error) {
	revision, err := c.Revision(ctx)
	if err != nil {
		return activities.Digest{}, fmt.Errorf("read revision of shard %s: %w", c.shard, err)
	}
	digest, err := c.Digest(ctx, logicalCluster, revision)
	if err != nil {
		return activities.Digest{}, fmt.Errorf("digest %s on shard %s: %w", logicalCluster, c.shard, err)
	}
	return digest, nil
}

func (c shardCopy) list(ctx context.Context, logicalCluster string, families []keyspace.Family, revision int64) ([]activities.Listed, error) {
	listed, err := c.List(ctx, logicalCluster, families, revision)
	if err != nil {
		return nil, fmt.Errorf("list entries of %s on shard %s: %w", logicalCluster, c.shard, err)
	}
	return listed, nil
}

// tell sorts the differences; none is left where a lease has run out in the meantime.
func (c *comparison) tell(wanted, present []activities.Listed) {
	there := make(map[activities.Ref]bool, len(present))
	for _, entry := range present {
		there[entry.Ref] = true
	}
	puts, deletes := activities.Differences(wanted, present)
	for _, ref := range puts {
		if there[ref] {
			c.Different = append(c.Different, ref)
		} else {
			c.Missing = append(c.Missing, ref)
		}
	}
	c.Extra = deletes
	c.Equal = len(puts)+len(deletes) == 0
}

// names are the differing entries.
func (c *comparison) names() []string {
	var names []string
	for _, refs := range [][]activities.Ref{c.Missing, c.Different, c.Extra} {
		names = append(names, refLines(refs)...)
	}
	return names
}

func (c *comparison) print(out *tabwriter.Writer) {
	property(out, "Logical cluster", c.LogicalCluster)
	property(out, "Entries at "+c.OriginShard, fmt.Sprintf("%s (%s)", countText(c.Entries), bytesText(c.Bytes)))
	property(out, "SHA-256", c.SHA256)
	if c.Equal {
		property(out, "Equal", "yes")
	}
	list(out, "Only on shard "+c.OriginShard, refLines(c.Missing))
	list(out, "Different", refLines(c.Different))
	list(out, "Only on shard "+c.DestinationShard, refLines(c.Extra))
}

func refLines(refs []activities.Ref) []string {
	lines := make([]string, len(refs))
	for i, ref := range refs {
		lines[i] = ref.String()
	}
	return lines
}
