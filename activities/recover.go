package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// KeysCounted is how many keys a survey counts at most: their number is for people.
const KeysCounted = 100_000

// FindShards finds the shards that may hold a claim of a logical cluster. One that no front-proxy knows must be named,
// for a path leads to its name only through them.
func (f *Fleet) FindShards(ctx context.Context, input FindInput) (*FindResult, error) {
	if keyspace.IsSystem(input.LogicalCluster) {
		return nil, refuseSystem(input.LogicalCluster)
	}
	shards, err := f.shards(ctx)
	if err != nil {
		return nil, permanent(fmt.Errorf("list shards: %w", err))
	}
	found := &FindResult{Shards: make([]string, len(shards))}
	for i, shard := range shards {
		found.Shards[i] = shard.Name
	}
	found.Location, err = f.locate(ctx, input.LogicalCluster)
	if err == nil {
		return found, nil
	}
	if keyspace.IsLogicalClusterName(input.LogicalCluster) {
		found.Location = Location{LogicalCluster: input.LogicalCluster}
		return found, nil
	}
	if errors.Is(err, ErrNotFound) {
		return nil, Refuse(LogicalClusterNotFound, "no front-proxy knows %q; give the logical cluster's name instead, as in /kcp-migrate/migrations/<prefix>/<name>/ in etcd", input.LogicalCluster)
	}
	return nil, permanent(fmt.Errorf("locate logical cluster %s, which its name instead of its path would spare: %w", input.LogicalCluster, err))
}

// FindWorkflow tells whether the workflow that a claim names still runs.
func (f *Fleet) FindWorkflow(ctx context.Context, input WorkflowInput) (*RunState, error) {
	state, err := f.Runs.State(ctx, input.WorkflowID)
	if errors.Is(err, ErrNotFound) {
		return &RunState{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find workflow %s: %w", input.WorkflowID, err)
	}
	return &state, nil
}

// Survey reads what this shard holds of a logical cluster and of a move of it. It needs neither kcp nor a claim.
func (s *Shard) Survey(ctx context.Context, input SurveyInput) (*Standing, error) {
	standing := &Standing{Shard: s.Name, TransferAddress: s.TransferAddress, ReachesCache: s.Cache != nil}
	err := heartbeating(ctx, func(ctx context.Context) error { return s.survey(ctx, input.LogicalCluster, standing) })
	if err != nil {
		return nil, permanentForward(fmt.Errorf("survey %s on shard %s: %w", input.LogicalCluster, s.Name, err))
	}
	return standing, nil
}

func (s *Shard) survey(ctx context.Context, logicalCluster string, standing *Standing) error {
	claim, err := s.Store.ReadClaim(ctx, logicalCluster)
	if err == nil {
		standing.Claim = &claim
	} else if !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read claim: %w", err)
	}
	keys, err := s.Store.Keys(ctx, logicalCluster, KeysCounted)
	if err != nil {
		return fmt.Errorf("list keys: %w", err)
	}
	standing.Keys = len(keys)
	parsed, _, err := s.readLogicalCluster(ctx, logicalCluster)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	standing.HasLogicalCluster = true
	standing.LogicalClusterPhase, standing.Inactive = parsed.Phase(), parsed.Inactive()
	standing.Stamp, standing.Path = Token(parsed.Stamp()), parsed.Path()
	if owner, name, uid := parsed.Owner(); name != "" {
		standing.Owner = &OwnerRef{LogicalCluster: owner, Name: name, UID: uid}
	}
	return nil
}

// TakeClaim takes the claim over from a run that is gone, and with it what that run had fenced: once it has landed
// nothing that the run left behind, on whichever worker, can write here. It has no undo: there is nobody to give it back to.
func (s *Shard) TakeClaim(ctx context.Context, input TakeInput) (*TakeResult, error) {
	claim, err := s.Store.TakeClaim(ctx, input.Guard, input.From, input.Info)
	if errors.Is(err, ErrClaimed) || errors.Is(err, ErrTokenLost) {
		return nil, Refuse(ClaimChanged, "the claim of %s on shard %s changed hands since it was looked at, now held by %q; look again with `kcp-migrate recover %s`",
			input.Guard.LogicalCluster, s.Name, claim.WorkflowID, input.Guard.LogicalCluster)
	}
	if err != nil {
		return nil, permanent(fmt.Errorf("take claim of %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	if !input.Committed {
		guard := Guard{LogicalCluster: input.Guard.LogicalCluster, Token: claim.Token}
		if err := s.adopt(ctx, guard); err != nil {
			return nil, permanent(err)
		}
	}
	return &TakeResult{Token: claim.Token, Committed: claim.Committed}, nil
}

// adopt makes what is stamped the taker's. Only a holder of this shard's claim can have stamped it, so whatever run
// the stamp names, the claim has come from it.
func (s *Shard) adopt(ctx context.Context, guard Guard) error {
	_, err := s.editLogicalCluster(ctx, guard, guard.LogicalCluster, func(present *objects.LogicalCluster) error {
		if guard.Token.SameRun(Token(present.Stamp())) || !present.Adopt(string(guard.Token)) {
			return errKeep
		}
		return nil
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// ReadContents reads what a recovered move must know of the tenant, where it is served.
func (s *Shard) ReadContents(ctx context.Context, input GuardInput) (*Contents, error) {
	var contents Contents
	err := heartbeating(ctx, func(ctx context.Context) (err error) {
		contents, err = s.API.Contents(ctx, input.Guard.LogicalCluster)
		return err
	})
	if err != nil {
		return nil, permanent(fmt.Errorf("read contents of %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return &contents, nil
}
