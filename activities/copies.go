package activities

import (
	"context"
	"fmt"
	"time"
)

// copiesQuiet is how long a shard's controllers get to show that they make no copies anew. They take milliseconds once
// their informers are connected.
const copiesQuiet = 2 * time.Second

// RenewCachedCopies puts kcp's cache server right after a move: it deletes what the origin, where this runs, left
// there and has the destination's copies announced to every shard anew. Informers key copies without their shard, so
// each deletion of one shard's copy hides the other's (docs/kcp-findings.md, Trap 5). It is done when the origin has
// made no copy for a while. The cache server knows no tokens: an attempt that was given up for dead only makes the
// shards write their own copies once more.
func (s *Shard) RenewCachedCopies(ctx context.Context, input RenewInput) (*RenewResult, error) {
	if s.Cache == nil { // the worker that made the plan had one
		return nil, fmt.Errorf("renew copies of %s in the cache server: this worker of shard %s has no --cache-kubeconfig", input.Guard.LogicalCluster, s.Name)
	}
	result := &RenewResult{}
	err := heartbeating(ctx, func(ctx context.Context) error {
		for {
			left, present, err := s.renewOnce(ctx, input)
			if err != nil {
				return err
			}
			again := left > 0 || result.Touched == 0 && present > 0
			result.Deleted, result.Touched = result.Deleted+left, present
			if !again {
				return nil
			}
			report(ctx, fmt.Sprintf("deleted %d copies of the origin's so far", result.Deleted))
			if err := sleep(ctx, copiesQuiet); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return nil, permanent(fmt.Errorf("renew copies of %s in the cache server: %w", input.Guard.LogicalCluster, err))
	}
	return result, nil
}

func (s *Shard) renewOnce(ctx context.Context, input RenewInput) (left, present int, err error) {
	if left, err = s.Cache.DeleteCopies(ctx, input.Guard.LogicalCluster, s.Name); err != nil {
		return left, 0, fmt.Errorf("delete those of shard %s: %w", s.Name, err)
	}
	if present, err = s.Cache.TouchCopies(ctx, input.Guard.LogicalCluster, input.DestinationShard); err != nil {
		return left, present, fmt.Errorf("touch those of shard %s: %w", input.DestinationShard, err)
	}
	return left, present, nil
}
