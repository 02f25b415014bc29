package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// Origin serves a shard's entries to the workers of other shards. It keeps no state, so any replica can serve.
// Whether the asking move holds the claim is checked before it, where requests come in.
type Origin struct {
	store Store
}

var _ Source = (*Origin)(nil)

// NewOrigin serves from a store.
func NewOrigin(store Store) *Origin { return &Origin{store: store} }

// Revision is the store's current one, taken after checking the fence.
func (o *Origin) Revision(ctx context.Context, guard Guard) (int64, error) {
	if _, err := o.LogicalCluster(ctx, guard); err != nil {
		return 0, err
	}
	return o.store.Revision(ctx)
}

// LogicalCluster is the origin's object while the fence of the guard's run stands.
func (o *Origin) LogicalCluster(ctx context.Context, guard Guard) (Object, error) {
	present, err := o.store.LogicalCluster(ctx, guard.LogicalCluster)
	if errors.Is(err, ErrNotFound) {
		return Object{}, fmt.Errorf("LogicalCluster %s is gone: %w", guard.LogicalCluster, ErrNotFenced)
	}
	if err != nil {
		return Object{}, fmt.Errorf("read LogicalCluster %s: %w", guard.LogicalCluster, err)
	}
	parsed, err := objects.ParseLogicalCluster(present.Value)
	if err != nil {
		return Object{}, err
	}
	if !fencedBy(parsed, guard.Token) || parsed.BeingDeleted() || parsed.Phase() != objects.PhaseInactive {
		return Object{}, fmt.Errorf("LogicalCluster %s, phase %s: %w", guard.LogicalCluster, parsed.Phase(), ErrNotFenced)
	}
	return present, nil
}

// Read streams the entries at a pinned revision.
func (o *Origin) Read(ctx context.Context, _ Guard, request ReadRequest) Batches {
	return o.store.Read(ctx, request)
}

// Digest sums the logical cluster up at a revision.
func (o *Origin) Digest(ctx context.Context, guard Guard, revision int64) (Digest, error) {
	return o.store.Digest(ctx, guard.LogicalCluster, revision)
}

// List gives the entries of some families without their values.
func (o *Origin) List(ctx context.Context, guard Guard, families []keyspace.Family, revision int64) ([]Listed, error) {
	return o.store.List(ctx, guard.LogicalCluster, families, revision)
}

// Get gives those of refs that exist now.
func (o *Origin) Get(ctx context.Context, guard Guard, refs []Ref) ([]Entry, error) {
	return o.store.Get(ctx, guard.LogicalCluster, refs)
}

// BoundCRDs gives the CRDs named by these schema UIDs.
func (o *Origin) BoundCRDs(ctx context.Context, _ Guard, schemaUIDs []string) (map[string][]byte, error) {
	return o.store.BoundCRDs(ctx, schemaUIDs)
}
