package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// heldEntries is a Reader of a few entries.
type heldEntries struct {
	activities.Reader
	listed []activities.Listed
	lists  int
	err    error
}

func held(entries ...activities.Listed) *heldEntries { return &heldEntries{listed: entries} }

func entry(family, suffix, value string, ttl time.Duration) activities.Listed {
	return activities.Listed{Ref: ref(family, suffix), SHA256: sha256.Sum256([]byte(value)), Bytes: int64(len(value)), TTL: ttl}
}

func (h *heldEntries) Revision(context.Context) (int64, error) { return 7, h.err }

func (h *heldEntries) Digest(_ context.Context, _ string, revision int64) (activities.Digest, error) {
	digest := activities.Digest{Revision: revision}
	hash := sha256.New()
	for _, one := range h.listed {
		if one.TTL > 0 {
			digest.Leased = append(digest.Leased, one)
			continue
		}
		hash.Write(append([]byte(one.String()), one.SHA256[:]...))
		digest.Families = []activities.FamilyDigest{{Family: one.Family, SHA256: hex.EncodeToString(hash.Sum(nil))}}
	}
	return digest, nil
}

func (h *heldEntries) List(context.Context, string, []keyspace.Family, int64) ([]activities.Listed, error) {
	h.lists++
	return h.listed, nil
}

func (h *heldEntries) Keys(context.Context, string, int) ([]string, error) {
	var keys []string
	for _, one := range h.listed {
		keys = append(keys, one.String())
	}
	return keys, h.err
}

func compareHeld(t *testing.T, origin, destination *heldEntries) *comparison {
	t.Helper()
	result, err := compare(t.Context(), "256hdo017n2m0br9", shardCopy{"root", origin}, shardCopy{"shard-1", destination})
	require.NoError(t, err)
	return result
}

func TestCompare_WhenEqual_ListsNothing(t *testing.T) {
	origin := held(entry("core/secrets", "default/a", "1", 0))

	result := compareHeld(t, origin, held(entry("core/secrets", "default/a", "1", 0)))

	require.True(t, result.Equal)
	require.Zero(t, origin.lists)
}

func TestCompare_NamesWhatDiffersAndHow(t *testing.T) {
	origin := held(entry("core/secrets", "default/a", "1", 0), entry("core/secrets", "default/b", "1", 0), entry("core/secrets", "default/c", "1", 0))
	destination := held(entry("core/secrets", "default/b", "2", 0), entry("core/secrets", "default/c", "1", 0), entry("core/secrets", "default/d", "1", 0))

	result := compareHeld(t, origin, destination)

	require.False(t, result.Equal)
	require.Equal(t, []activities.Ref{ref("core/secrets", "default/a")}, result.Missing)
	require.Equal(t, []activities.Ref{ref("core/secrets", "default/b")}, result.Different)
	require.Equal(t, []activities.Ref{ref("core/secrets", "default/d")}, result.Extra)
	require.Equal(t, []string{"core/secrets default/a", "core/secrets default/b", "core/secrets default/d"}, result.names())
}

func TestCompare_ToleratesLeasesNearTheirEnd(t *testing.T) {
	for name, c := range map[string]struct {
		ttl   time.Duration
		equal bool
	}{
		"near its end": {29 * time.Second, true},
		"far from it":  {time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.equal, compareHeld(t, held(entry("core/events", "default/a", "1", c.ttl)), held()).Equal)
			require.Equal(t, c.equal, compareHeld(t, held(), held(entry("core/events", "default/a", "1", c.ttl))).Equal)
		})
	}
}

func TestCompare_WhenAShardCannotBeRead_NamesIt(t *testing.T) {
	away := errors.New("etcd is away")

	_, err := compare(t.Context(), "256hdo017n2m0br9", shardCopy{"root", held()}, shardCopy{"shard-1", &heldEntries{err: away}})

	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, "shard-1")
}

func TestRequireEither_IsContentWithOneSide(t *testing.T) {
	some := held(entry("core/secrets", "default/a", "1", 0))

	require.NoError(t, requireEither(t.Context(), "256hdo017n2m0br9", shardCopy{"root", some}, shardCopy{"shard-1", held()}))
	require.NoError(t, requireEither(t.Context(), "256hdo017n2m0br9", shardCopy{"root", held()}, shardCopy{"shard-1", some}))
}

func TestRequireEither_WhenNeitherHasAKey_SaysWhatToGive(t *testing.T) {
	err := requireEither(t.Context(), "nosuchcluster0000", shardCopy{"root", held()}, shardCopy{"shard-1", held()})

	require.Equal(t, exitRefused, exitCode(t.Context(), err))
	require.ErrorContains(t, err, "no key of logical cluster nosuchcluster0000 on shards root and shard-1; give its name, or its workspace path")
}
