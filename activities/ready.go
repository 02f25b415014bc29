package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// liftPerSecond bounds the tiny writes of a lift so that the shard's own stay fast; one etcd took 15,000 a second
// with 64 in flight (kcp-findings.md).
const liftPerSecond = 8000

// DiscardLeftovers deletes what the destination holds of the logical cluster where it has no LogicalCluster of it.
func (s *Shard) DiscardLeftovers(ctx context.Context, input GuardInput) error {
	return permanent(heartbeating(ctx, func(ctx context.Context) error {
		_, err := s.Store.LogicalCluster(ctx, input.Guard.LogicalCluster)
		switch {
		case err == nil:
			return Refuse(DestinationNotEmpty, "shard %s has a LogicalCluster %s since preflight; find out who made it", s.Name, input.Guard.LogicalCluster)
		case !errors.Is(err, ErrNotFound):
			return fmt.Errorf("read LogicalCluster %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err)
		}
		return s.deleteEntries(ctx, input.Guard)
	}))
}

// InstallBoundCRDs creates the CRDs that the destination lacks to serve bound resources. It has no undo: another
// tenant may use them by then, and kcp collects unused ones.
func (s *Shard) InstallBoundCRDs(ctx context.Context, input InstallInput) (*InstallResult, error) {
	origin, hangUp, err := s.Dialer.Dial(input.Origin.Address)
	if err != nil {
		return nil, fmt.Errorf("dial origin worker %s: %w", input.Origin.Address, err)
	}
	defer hangUp()
	created, err := s.installBoundCRDs(ctx, origin, input)
	if err != nil {
		return nil, permanentForward(err)
	}
	return &InstallResult{Created: created}, nil
}

func (s *Shard) installBoundCRDs(ctx context.Context, origin Source, input InstallInput) ([]string, error) {
	values, err := origin.BoundCRDs(ctx, input.Origin.Guard, input.SchemaUIDs)
	if err != nil {
		return nil, fmt.Errorf("read bound CRDs from %s: %w", input.Origin.Address, err)
	}
	var installed []string
	for _, uid := range input.SchemaUIDs {
		created, err := s.installBoundCRD(ctx, input.Guard, uid, values[uid])
		if err != nil {
			return nil, err
		}
		if created {
			installed = append(installed, uid)
		}
	}
	return installed, nil
}

func (s *Shard) installBoundCRD(ctx context.Context, guard Guard, schemaUID string, value []byte) (bool, error) {
	if value == nil {
		return false, Refuse(BoundResourceMissing, "the origin no longer has the CRD of schema %s; start the move again", schemaUID)
	}
	established, err := objects.IsEstablished(value)
	if err != nil {
		return false, err
	}
	if !established {
		return false, Refuse(BoundResourceMissing, "the CRD of schema %s is not established at the origin; mend the APIBinding first", schemaUID)
	}
	renewed, err := objects.RenewBoundCRD(value, time.Now())
	if err != nil {
		return false, err
	}
	created, err := s.Store.CreateBoundCRD(ctx, guard, schemaUID, renewed)
	if err != nil {
		return false, fmt.Errorf("create bound CRD %s on shard %s: %w", schemaUID, s.Name, err)
	}
	return created, nil
}

// LiftRevision raises the destination's revision above the origin's, so that no client's watch stays silently deaf.
func (s *Shard) LiftRevision(ctx context.Context, input LiftInput) (*LiftResult, error) {
	revision, err := s.Store.LiftRevision(ctx, input.Guard, input.To, liftPerSecond, func(reached int64) {
		activity.RecordHeartbeat(ctx, reached)
	})
	if err != nil {
		return nil, permanent(fmt.Errorf("lift revision of shard %s to %d: %w", s.Name, input.To, err))
	}
	return &LiftResult{Revision: revision}, nil
}
