package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// claimsPrefix is below no storage prefix of kcp's, so that no API server ever reads it.
func (s *Store) claimsPrefix() string { return "/kcp-migrate/migrations/" + s.ofShard() + "/" }

func (s *Store) claimPrefix(logicalCluster string) string {
	return s.claimsPrefix() + logicalCluster + "/"
}

// ofShard tells the shard's own keys from those of others that have their storage prefixes in the same etcd.
func (s *Store) ofShard() string { return url.PathEscape(strings.Trim(s.layout.Prefix(), "/")) }

func (s *Store) tokenKey(logicalCluster string) string {
	return s.claimPrefix(logicalCluster) + "token"
}

func (s *Store) infoKey(logicalCluster string) string {
	return s.claimPrefix(logicalCluster) + "info"
}

func (s *Store) committedKey(logicalCluster string) string {
	return s.claimPrefix(logicalCluster) + "committed"
}

// claim is everything under a logical cluster's claim, read at one revision.
type claim struct {
	activities.Claim
	// infoRevision is the ModRevision of the info.
	infoRevision int64
	// landing is what a commit left, of this claim's run or not; its token is empty before.
	landing activities.Landing
	// committedRevision is the ModRevision of the landing's key.
	committedRevision int64
}

// isOf reports whether a claim is of the token's run. One that was sealed by deleting its token has only its info
// left to tell.
func isOf(claim activities.Claim, token activities.Token) bool {
	if claim.Token != "" {
		return claim.Token.SameRun(token)
	}
	return claim.RunID != "" && claim.RunID == token.Run()
}

// Claim creates the claim. A repeat with the same token succeeds; another move's claim gives ErrClaimed and that claim.
//
// A claim that was sealed by deleting its token still counts, by its info. Taking it over would harm nothing, because
// the undo under way compares that info before it deletes; but the undo would be cut short, and what it left would be
// in the new move's way. And a late attempt of the sealed run's own Claim must not bring its token back.
func (s *Store) Claim(
	ctx context.Context, guard activities.Guard, info activities.ClaimInfo,
) (activities.Claim, error) {
	if err := checkGuard(guard); err != nil {
		return activities.Claim{}, err
	}
	encoded, err := json.Marshal(info)
	if err != nil {
		return activities.Claim{}, fmt.Errorf("encode claim of logical cluster %s: %w", guard.LogicalCluster, err)
	}
	response, err := s.client.Txn(ctx).
		If(absent(s.tokenKey(guard.LogicalCluster)), absent(s.infoKey(guard.LogicalCluster))).
		Then(
			// Left where somebody removed only a part by hand. Only an absent one says that no commit has landed.
			clientv3.OpDelete(s.committedKey(guard.LogicalCluster)),
			clientv3.OpDelete(s.deletedKey(guard.LogicalCluster)),
			clientv3.OpPut(s.tokenKey(guard.LogicalCluster), string(guard.Token)),
			clientv3.OpPut(s.infoKey(guard.LogicalCluster), string(encoded)),
		).Commit()
	if err != nil {
		return activities.Claim{}, fmt.Errorf("claim logical cluster %s: %w", guard.LogicalCluster, translate(err))
	}
	if response.Succeeded {
		return activities.Claim{Token: guard.Token, ClaimInfo: info}, nil
	}
	return s.claimed(ctx, guard)
}

// claimed tells a repeat of our own claim from another move's.
func (s *Store) claimed(ctx context.Context, guard activities.Guard) (activities.Claim, error) {
	present, err := s.ReadClaim(ctx, guard.LogicalCluster)
	switch {
	case err != nil:
		return activities.Claim{}, err
	case present.Token == guard.Token:
		return present, nil
	case isOf(present, guard.Token):
		return present, fmt.Errorf("claim logical cluster %s: %w", guard.LogicalCluster, activities.ErrTokenLost)
	default:
		return present, fmt.Errorf("claim logical cluster %s: %w: workflow %s",
			guard.LogicalCluster, activities.ErrClaimed, present.WorkflowID)
	}
}

// ReadClaim gives ErrNotFound where there is none. A claim that was sealed by deleting its token comes without one.
func (s *Store) ReadClaim(ctx context.Context, logicalCluster string) (activities.Claim, error) {
	read, err := s.readClaim(ctx, logicalCluster)
	if err != nil {
		return activities.Claim{}, err
	}
	if read.Token == "" && read.infoRevision == 0 {
		return activities.Claim{}, fmt.Errorf("read claim of logical cluster %s: %w", logicalCluster, activities.ErrNotFound)
	}
	return read.Claim, nil
}

// readClaim gives an empty claim where there is none.
func (s *Store) readClaim(ctx context.Context, logicalCluster string) (claim, error) {
	response, err := s.client.Get(ctx, s.claimPrefix(logicalCluster), clientv3.WithPrefix())
	if err != nil {
		return claim{}, fmt.Errorf("read claim of logical cluster %s: %w", logicalCluster, translate(err))
	}
	return s.claimOf(logicalCluster, response.Kvs)
}

func (s *Store) claimOf(logicalCluster string, kvs []*mvccpb.KeyValue) (claim, error) {
	var read claim
	for _, kv := range kvs {
		switch string(kv.Key) {
		case s.tokenKey(logicalCluster):
			read.Token = activities.Token(kv.Value)
		case s.infoKey(logicalCluster):
			if err := json.Unmarshal(kv.Value, &read.ClaimInfo); err != nil {
				return claim{}, fmt.Errorf("decode claim of logical cluster %s: %w", logicalCluster, err)
			}
			read.infoRevision = kv.ModRevision
		case s.committedKey(logicalCluster):
			landing, err := decodeLanding(kv.Value, kv.ModRevision)
			if err != nil {
				return claim{}, fmt.Errorf("decode landing of logical cluster %s: %w", logicalCluster, err)
			}
			read.landing, read.committedRevision = landing, kv.ModRevision
		case s.deletedKey(logicalCluster):
			read.DroppedAt = kv.CreateRevision
		}
	}
	if isOf(read.Claim, read.landing.Token) {
		read.Committed, read.Landing = true, &read.landing
	}
	return read, nil
}

// OthersSince gives when the first of the claims on this shard but the logical cluster's own was made, zero where there is
// none. One whose token was never raised has cut nothing off: its move waits for approval, say.
func (s *Store) OthersSince(ctx context.Context, logicalCluster string) (time.Time, error) {
	response, err := s.client.Get(ctx, s.claimsPrefix(), clientv3.WithPrefix())
	if err != nil {
		return time.Time{}, fmt.Errorf("list claims: %w", translate(err))
	}
	var first time.Time
	for owner, kvs := range s.byOwner(response.Kvs) {
		other, err := s.claimOf(owner, kvs)
		if err != nil {
			return time.Time{}, err
		}
		if owner != logicalCluster && other.Token.Number() > 1 && (first.IsZero() || other.ClaimedAt.Before(first)) {
			first = other.ClaimedAt
		}
	}
	return first, nil
}

// byOwner parts what is below claimsPrefix by the logical cluster.
func (s *Store) byOwner(kvs []*mvccpb.KeyValue) map[string][]*mvccpb.KeyValue {
	claims := map[string][]*mvccpb.KeyValue{}
	for _, kv := range kvs {
		owner, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), s.claimsPrefix()), "/")
		claims[owner] = append(claims[owner], kv)
	}
	return claims
}

// putLanding is what marks a claim committed.
func (s *Store) putLanding(guard activities.Guard, landing activities.Landing) (clientv3.Op, error) {
	encoded, err := json.Marshal(landing)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encode landing of logical cluster %s: %w", guard.LogicalCluster, err)
	}
	return clientv3.OpPut(s.committedKey(guard.LogicalCluster), string(encoded)), nil
}

// decodeLanding fills in the revision of the landing, which its own Txn could not know. Where the claim was taken over
// since, the key has been written anew and holds it.
func decodeLanding(value []byte, modRevision int64) (activities.Landing, error) {
	var landing activities.Landing
	if err := json.Unmarshal(value, &landing); err != nil {
		return landing, err
	}
	if landing.Revision == 0 {
		landing.Revision = modRevision
	}
	return landing, nil
}

// TakeClaim takes the claim over from the run that held it. Token, info and landing change hands in one Txn that compares
// all three as they were read: from then on every Txn of that run fails, its seal and its deletions under a deleted token
// among them. What it had deleted stays noted, for the sweep that goes on.
func (s *Store) TakeClaim(
	ctx context.Context, guard activities.Guard, from string, info activities.ClaimInfo,
) (activities.Claim, error) {
	if from == "" {
		return s.Claim(ctx, guard, info)
	}
	if err := checkGuard(guard); err != nil {
		return activities.Claim{}, err
	}
	for {
		present, err := s.readClaim(ctx, guard.LogicalCluster)
		if err != nil {
			return activities.Claim{}, err
		}
		switch present.Claimant() {
		case guard.Token.Run():
			return present.Claim, nil
		case from:
		default:
			return present.Claim, fmt.Errorf("take claim of logical cluster %s from run %s: %w: run %q",
				guard.LogicalCluster, from, activities.ErrClaimed, present.Claimant())
		}
		// Whether that took it, what it holds then tells.
		if err := s.takeClaimIf(ctx, guard, present, info); err != nil {
			return activities.Claim{}, fmt.Errorf("take claim of logical cluster %s: %w", guard.LogicalCluster, err)
		}
	}
}

// takeClaimIf does nothing when the claim has changed since it was read.
func (s *Store) takeClaimIf(
	ctx context.Context, guard activities.Guard, present claim, info activities.ClaimInfo,
) error {
	encoded, err := json.Marshal(info)
	if err != nil {
		return fmt.Errorf("encode claim: %w", err)
	}
	token, held := guard.Token, absent(s.tokenKey(guard.LogicalCluster))
	if present.Token != "" {
		token = present.Token.TakenBy(guard.Token.Run())
		held = s.holdsToken(activities.Guard{LogicalCluster: guard.LogicalCluster, Token: present.Token})
	}
	operations := []clientv3.Op{s.putToken(guard, token), clientv3.OpPut(s.infoKey(guard.LogicalCluster), string(encoded))}
	if present.Committed {
		landing := present.landing
		landing.Token = token
		put, err := s.putLanding(guard, landing)
		if err != nil {
			return err
		}
		operations = append(operations, put)
	}
	_, err = s.client.Txn(ctx).
		If(held, isAt(s.infoKey(guard.LogicalCluster), present.infoRevision), isAt(s.committedKey(guard.LogicalCluster), present.committedRevision)).
		Then(operations...).Commit()
	return translate(err)
}

// RaiseToken replaces the token by a higher one of the same run. ErrTokenLost if the claim is not this run's.
func (s *Store) RaiseToken(ctx context.Context, guard activities.Guard, to activities.Token) error {
	return s.replaceToken(ctx, guard, to, s.putToken(guard, to), func(present claim) error {
		if !present.Token.SameRun(to) {
			return activities.ErrTokenLost
		}
		return nil
	})
}

func (s *Store) putToken(guard activities.Guard, to activities.Token) clientv3.Op {
	return clientv3.OpPut(s.tokenKey(guard.LogicalCluster), string(to))
}

// errGone says that a claim holds no token of this run any more.
var errGone = errors.New("claim is gone")

// Seal raises the token in one Txn with the proof that the commit has not landed: ErrCommitted if it has.
// A claim that is gone, or is another run's by now, seals nothing and is no error: no commit of this run can
// land without its token.
//
// Where etcd is out of space it refuses every Txn that has a put in it, and so the token is deleted instead. That
// locks out the run's writes for good. Its deletions go on by the info that is left: see guardedDelete.
func (s *Store) Seal(ctx context.Context, guard activities.Guard, to activities.Token) error {
	err := s.seal(ctx, guard, to, s.putToken(guard, to))
	if errors.Is(err, activities.ErrNoSpace) {
		return s.sealByDeletion(ctx, guard, to)
	}
	return err
}

func (s *Store) sealByDeletion(ctx context.Context, guard activities.Guard, to activities.Token) error {
	return s.seal(ctx, guard, to, clientv3.OpDelete(s.tokenKey(guard.LogicalCluster)))
}

func (s *Store) seal(
	ctx context.Context, guard activities.Guard, to activities.Token, replacement clientv3.Op,
) error {
	err := s.replaceToken(ctx, guard, to, replacement, func(present claim) error {
		if present.landing.Token.SameRun(to) {
			return activities.ErrCommitted
		}
		if !present.Token.SameRun(to) {
			return errGone
		}
		return nil
	})
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// replaceToken puts a higher token, or deletes the present one, unless the claim forbids it. It goes from whatever
// lower token of the run is there, so that it can be repeated; that and the commit's absence are compared in the Txn.
// It looks before every try: the Txn that uses up etcd's space lands and is yet answered with ErrNoSpace
// (quotaApplierV3 in etcd's server/etcdserver/apply/quota.go).
func (s *Store) replaceToken(
	ctx context.Context, guard activities.Guard, to activities.Token, replacement clientv3.Op, forbids func(claim) error,
) error {
	if err := checkRaise(guard, to); err != nil {
		return err
	}
	for {
		present, err := s.readClaim(ctx, guard.LogicalCluster)
		if err != nil {
			return err
		}
		if err := forbids(present); err != nil {
			return fmt.Errorf("replace token of logical cluster %s: %w", guard.LogicalCluster, err)
		}
		if present.Token == to {
			return nil
		}
		if present.Token.Number() > to.Number() {
			return fmt.Errorf("replace token of logical cluster %s by %s: %w: it is %s already",
				guard.LogicalCluster, to, activities.ErrTokenLost, present.Token)
		}
		replaced, err := s.replaceTokenIf(ctx, guard, present, replacement)
		if err != nil || replaced {
			return err
		}
	}
}

// replaceTokenIf gives false when the claim has changed since it was read.
func (s *Store) replaceTokenIf(
	ctx context.Context, guard activities.Guard, present claim, replacement clientv3.Op,
) (bool, error) {
	held := activities.Guard{LogicalCluster: guard.LogicalCluster, Token: present.Token}
	committed := clientv3.ModRevision(s.committedKey(guard.LogicalCluster))
	response, err := s.client.Txn(ctx).
		If(s.holdsToken(held), clientv3.Compare(committed, "=", present.committedRevision)).
		Then(replacement).Commit()
	if err != nil {
		return false, fmt.Errorf("replace token of logical cluster %s: %w", guard.LogicalCluster, translate(err))
	}
	return response.Succeeded, nil
}

func checkRaise(guard activities.Guard, to activities.Token) error {
	if err := checkGuard(guard); err != nil {
		return err
	}
	if !to.SameRun(guard.Token) || to.Number() <= guard.Token.Number() {
		return fmt.Errorf("raise token of logical cluster %s: %s is no higher token of the run of %s",
			guard.LogicalCluster, to, guard.Token)
	}
	return nil
}

// Release removes the claim. One that is gone, or another run's by now, is no error; one of this run that
// holds another token is: this attempt was given up for dead.
func (s *Store) Release(ctx context.Context, guard activities.Guard) error {
	_, err := s.guardedDelete(ctx, guard, nil, clientv3.OpDelete(s.claimPrefix(guard.LogicalCluster), clientv3.WithPrefix()))
	if err == nil {
		return nil
	}
	if errors.Is(err, activities.ErrTokenLost) {
		held, readErr := s.readToken(ctx, guard.LogicalCluster)
		if readErr == nil && !held.SameRun(guard.Token) {
			return nil
		}
		err = errors.Join(err, readErr)
	}
	return fmt.Errorf("release claim of logical cluster %s: %w", guard.LogicalCluster, err)
}

func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }
