package activities

import (
	"context"
	"errors"
	"fmt"
)

// Claim takes this shard's etcd for the move. Its undo is Release.
func (s *Shard) Claim(ctx context.Context, input ClaimInput) error {
	claim, err := s.Store.Claim(ctx, input.Guard, input.Info)
	if errors.Is(err, ErrClaimed) {
		return s.refuseClaimed(input.Guard.LogicalCluster, claim)
	}
	if err != nil {
		return permanent(fmt.Errorf("claim %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return nil
}

// Release gives the claim back.
func (s *Shard) Release(ctx context.Context, input GuardInput) error {
	if err := s.Store.Release(ctx, input.Guard); err != nil {
		return permanent(fmt.Errorf("release %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return nil
}

// RaiseToken locks out every attempt that still holds the guard's token.
func (s *Shard) RaiseToken(ctx context.Context, input RaiseInput) error {
	err := s.Store.RaiseToken(ctx, input.Guard, input.To)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return permanent(fmt.Errorf("raise token of %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return nil
}

// Seal raises the destination's token unless the commit has landed. After it no commit can.
func (s *Shard) Seal(ctx context.Context, input RaiseInput) (*SealResult, error) {
	err := s.Store.Seal(ctx, input.Guard, input.To)
	if errors.Is(err, ErrCommitted) {
		return &SealResult{Committed: true}, nil
	}
	if err != nil {
		return nil, permanent(fmt.Errorf("seal %s on shard %s: %w", input.Guard.LogicalCluster, s.Name, err))
	}
	return &SealResult{}, nil
}
