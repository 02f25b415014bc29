package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// errKeep is what a change returns to leave the object as it is.
var errKeep = errors.New("object stays as it is")

// editLogicalCluster applies a change to a LogicalCluster in etcd and repeats it as long as somebody else's edit
// comes between. It returns the revision of the write, 0 when the change kept the object. ErrNotFound passes through.
func (s *Shard) editLogicalCluster(ctx context.Context, guard Guard, logicalCluster string, change func(*objects.LogicalCluster) error) (int64, error) {
	for {
		present, err := s.Store.LogicalCluster(ctx, logicalCluster)
		if err != nil {
			return 0, fmt.Errorf("read LogicalCluster %s on shard %s: %w", logicalCluster, s.Name, err)
		}
		edit := s.Store.EditLogicalCluster
		value, err := changed(present.Value, func(object *objects.LogicalCluster) error {
			if err := change(object); err != nil {
				return err
			}
			if object.CutsInformers() {
				edit = s.Store.EditCutting
			}
			return nil
		})
		if errors.Is(err, errKeep) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		revision, err := edit(ctx, guard, logicalCluster, present.ModRevision, value)
		if errors.Is(err, ErrConflict) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("edit LogicalCluster %s on shard %s: %w", logicalCluster, s.Name, err)
		}
		return revision, nil
	}
}

func changed(value []byte, change func(*objects.LogicalCluster) error) ([]byte, error) {
	logicalCluster, err := objects.ParseLogicalCluster(value)
	if err != nil {
		return nil, err
	}
	if err := change(logicalCluster); err != nil {
		return nil, err
	}
	return logicalCluster.Encode()
}

// readLogicalCluster reads and parses a LogicalCluster of this shard.
func (s *Shard) readLogicalCluster(ctx context.Context, logicalCluster string) (*objects.LogicalCluster, Object, error) {
	present, err := s.Store.LogicalCluster(ctx, logicalCluster)
	if err != nil {
		return nil, Object{}, fmt.Errorf("read LogicalCluster %s on shard %s: %w", logicalCluster, s.Name, err)
	}
	parsed, err := objects.ParseLogicalCluster(present.Value)
	return parsed, present, err
}

// controllerPatience is how long kcp's controller gets to act on a LogicalCluster; that takes milliseconds, whatever its
// other informers are waiting for: its watch of LogicalClusters is not cut by a fence (kcp pkg/server/filters/perclustercontext.go).
const controllerPatience = 5 * time.Second

// awaitPhase waits until the LogicalCluster has one of the phases; ErrNotFound where it is gone.
func (s *Shard) awaitPhase(ctx context.Context, logicalCluster string, phases ...string) error {
	return s.awaitLogicalCluster(ctx, logicalCluster, fmt.Sprint("phase ", phases), func(present *objects.LogicalCluster) bool {
		return slices.Contains(phases, present.Phase())
	})
}

// awaitLogicalCluster waits until the LogicalCluster is as wanted; ErrNotFound where it is gone.
func (s *Shard) awaitLogicalCluster(
	ctx context.Context, logicalCluster, wanted string, reached func(*objects.LogicalCluster) bool,
) error {
	last := "unknown"
	err := s.Store.AwaitLogicalCluster(ctx, logicalCluster, func(present *Object) (bool, error) {
		if present == nil {
			return false, fmt.Errorf("LogicalCluster %s on shard %s: %w", logicalCluster, s.Name, ErrNotFound)
		}
		parsed, err := objects.ParseLogicalCluster(present.Value)
		if err != nil {
			return false, err
		}
		last = parsed.Phase()
		return reached(parsed), nil
	})
	if err != nil {
		return fmt.Errorf("await %s of LogicalCluster %s on shard %s, now %s: %w", wanted, logicalCluster, s.Name, last, err)
	}
	return nil
}
