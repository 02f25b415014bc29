package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// Resolve finds the logical cluster and its shard, and refuses a destination that it cannot go to.
func (f *Fleet) Resolve(ctx context.Context, input ResolveInput) (*ResolveResult, error) {
	if keyspace.IsSystem(input.LogicalCluster) {
		return nil, refuseSystem(input.LogicalCluster)
	}
	shards, err := f.shards(ctx)
	if err != nil {
		return nil, permanent(fmt.Errorf("list shards: %w", err))
	}
	location, err := f.locate(ctx, input.LogicalCluster)
	if errors.Is(err, ErrNotFound) {
		return nil, Refuse(LogicalClusterNotFound, "no workspace path or logical cluster %q; see `kubectl ws tree` for what there is", input.LogicalCluster)
	}
	if err != nil {
		return nil, permanent(fmt.Errorf("locate logical cluster %s: %w", input.LogicalCluster, err))
	}
	if keyspace.IsSystem(location.LogicalCluster) {
		return nil, refuseSystem(location.LogicalCluster)
	}
	if err := acceptDestination(input, location, shards); err != nil {
		return nil, err
	}
	return &ResolveResult{Location: location}, nil
}

// shards sends heartbeats meanwhile, and so does locate: a front-proxy that does not answer may take longer than a heartbeat,
// and the next one is asked only then.
func (f *Fleet) shards(ctx context.Context) (shards []ShardInfo, err error) {
	err = heartbeating(ctx, func(ctx context.Context) (err error) {
		shards, err = f.Directory.Shards(ctx)
		return err
	})
	return shards, err
}

func (f *Fleet) locate(ctx context.Context, logicalCluster string) (location Location, err error) {
	err = heartbeating(ctx, func(ctx context.Context) (err error) {
		location, err = f.Directory.Locate(ctx, logicalCluster)
		return err
	})
	return location, err
}

func refuseSystem(name string) error {
	return Refuse(SystemCluster, "logical cluster %q belongs to kcp itself and cannot be moved; name a workspace below root", name)
}

func acceptDestination(input ResolveInput, location Location, shards []ShardInfo) error {
	index := slices.IndexFunc(shards, func(shard ShardInfo) bool { return shard.Name == input.DestinationShard })
	if index < 0 {
		names := make([]string, len(shards))
		for i, shard := range shards {
			names[i] = shard.Name
		}
		return Refuse(ShardNotFound, "no Shard %q; there are: %s", input.DestinationShard, strings.Join(names, ", "))
	}
	if location.Shard == input.DestinationShard {
		return Refuse(SameShard, "logical cluster %s is on shard %s already; name another destination", location.LogicalCluster, location.Shard)
	}
	if reason := shards[index].NotReady; reason != "" && !input.ForceDestination {
		return Refuse(ShardNotReady, "shard %s is not ready: %s; mend it, or go on with forceDestination", input.DestinationShard, reason)
	}
	return nil
}

// AwaitRoute waits until every front-proxy routes the logical cluster to the shard, by its name and by its path. One
// that still answers, but wrongly, after the patience is told, not waited for: it has missed or forgotten something, and
// only an edit of the objects reminds it.
func (f *Fleet) AwaitRoute(ctx context.Context, input RouteInput) (*RouteResult, error) {
	var result RouteResult
	begun := time.Now()
	err := heartbeating(ctx, func(ctx context.Context) error {
		return until(ctx, func(ctx context.Context) (string, error) {
			probes := f.Directory.ProbeFrontProxies(ctx, input.LogicalCluster, input.Shard)
			if failing(probes) == "" && input.Path != "" {
				probes = f.Directory.ProbeFrontProxies(ctx, input.Path, input.Shard)
			}
			reason := failing(probes)
			if reason != "" && mayBeNudged(probes) && time.Since(begun) > input.Patience {
				result.Lost = reason
				return "", nil
			}
			return reason, nil
		})
	})
	if err != nil {
		return nil, err
	}
	return &result, nil
}

// TouchOwner edits the owner Workspace so that every front-proxy hears of it again, and so of the path that it gives. A
// Workspace that is gone is told.
func (f *Fleet) TouchOwner(ctx context.Context, input OwnerInput) (*OwnerResult, error) {
	err := f.Directory.TouchOwner(ctx, input.Owner)
	if errors.Is(err, ErrNotFound) {
		return &OwnerResult{Gone: true}, nil
	}
	if err != nil {
		return nil, permanent(fmt.Errorf("touch owner workspace %s: %w", input.Owner.Name, err))
	}
	return &OwnerResult{}, nil
}

// AwaitOwner waits until the owner Workspace names the shard. A Workspace that is gone is told, not waited for.
func (f *Fleet) AwaitOwner(ctx context.Context, input OwnerInput) (*OwnerResult, error) {
	var result OwnerResult
	err := heartbeating(ctx, func(ctx context.Context) error {
		return until(ctx, func(ctx context.Context) (string, error) {
			shard, err := f.Directory.OwnerShard(ctx, input.Owner)
			if errors.Is(err, ErrNotFound) {
				result.Gone = true
				return "", nil
			}
			if err != nil {
				return "", permanent(fmt.Errorf("read owner workspace %s: %w", input.Owner.Name, err))
			}
			if shard != input.Shard {
				return fmt.Sprintf("owner workspace %s names shard %s", input.Owner.Name, shard), nil
			}
			return "", nil
		})
	})
	if err != nil {
		return nil, err
	}
	return &result, nil
}
