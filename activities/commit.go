package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// Commit opens the destination: one Txn writes the origin's LogicalCluster there, without the fence. Its landing is
// the point of no return. A repeat after it landed tells the same landing.
func (s *Shard) Commit(ctx context.Context, input CommitInput) (*CommitResult, error) {
	source, hangUp, err := s.Dialer.Dial(input.Origin.Address)
	if err != nil {
		return nil, fmt.Errorf("dial origin worker %s: %w", input.Origin.Address, err)
	}
	defer hangUp()
	var revision int64
	err = heartbeating(ctx, func(ctx context.Context) error {
		for {
			revision, err = s.land(ctx, source, input)
			if !errors.Is(err, ErrConflict) || ctx.Err() != nil {
				return err
			}
		}
	})
	if err != nil {
		return nil, permanentForward(fmt.Errorf("commit %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return &CommitResult{Revision: revision}, nil
}

func (s *Shard) land(ctx context.Context, source Source, input CommitInput) (int64, error) {
	claim, err := s.Store.ReadClaim(ctx, input.Guard.LogicalCluster)
	if err != nil {
		return 0, fmt.Errorf("read claim: %w", err)
	}
	if claim.Committed && claim.Token.SameRun(input.Guard.Token) {
		// Landed before: the store only tells where.
		return s.Store.Commit(ctx, input.Guard, 0, nil, input.RaiseTo, input.Landing)
	}
	origin, err := source.LogicalCluster(ctx, input.Origin.Guard)
	if err != nil {
		return 0, fmt.Errorf("read LogicalCluster of the origin: %w", err)
	}
	_, present, err := s.enclosure(ctx, input.Guard.LogicalCluster)
	if err != nil {
		return 0, err
	}
	if err := s.completeBoundCRDs(ctx, source, input); err != nil {
		return 0, err
	}
	if input.TopUp && present.Revision <= origin.Revision {
		if _, err := s.Store.LiftRevision(ctx, input.Guard, origin.Revision+1, liftPerSecond, func(int64) {}); err != nil {
			return 0, fmt.Errorf("lift revision to %d: %w", origin.Revision, err)
		}
	}
	value, err := changed(origin.Value, func(object *objects.LogicalCluster) error {
		object.Open()
		return nil
	})
	if err != nil {
		return 0, err
	}
	return s.Store.Commit(ctx, input.Guard, present.ModRevision, value, input.RaiseTo, input.Landing)
}

// completeBoundCRDs installs what an APIBinding made since preflight needs: kcp never creates the CRD of a binding
// that is Bound already. The bindings are those that were copied.
func (s *Shard) completeBoundCRDs(ctx context.Context, source Source, input CommitInput) error {
	revision, err := s.Store.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read revision of the destination: %w", err)
	}
	listed, err := s.Store.List(ctx, input.Guard.LogicalCluster, []keyspace.Family{keyspace.APIBindings}, revision)
	if err != nil {
		return fmt.Errorf("list APIBindings of the destination: %w", err)
	}
	refs := make([]Ref, len(listed))
	for i, binding := range listed {
		refs[i] = binding.Ref
	}
	bindings, err := s.Store.Get(ctx, input.Guard.LogicalCluster, refs)
	if err != nil {
		return fmt.Errorf("read APIBindings of the destination: %w", err)
	}
	var uids []string
	for _, binding := range bindings {
		bound, err := objects.BoundSchemas(binding.Value)
		if err != nil {
			return fmt.Errorf("read APIBinding %s: %w", binding.Suffix, err)
		}
		uids = append(uids, bound...)
	}
	missing, err := s.missingCRDs(ctx, uids)
	if err != nil || len(missing) == 0 {
		return err
	}
	_, err = s.installBoundCRDs(ctx, source, InstallInput{Guard: input.Guard, Origin: input.Origin, SchemaUIDs: missing})
	return err
}
