package activities_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
)

const (
	workerUser, password = "kcp-migrate", "right"
	loginSeconds         = 1
)

// authenticating is the store of a worker's user.
var authenticating = etcd.Config{Username: workerUser, Password: func() (string, error) { return password, nil }}

// shortLogins makes an etcd whose logins end soon when they are not used.
func shortLogins(config *embed.Config) {
	config.AuthTokenTTL = loginSeconds
	config.BcryptCost = 4 // the least that bcrypt takes
}

// authenticate turns authentication on, with the role of deploy/rights/etcd.sh for the worker, and gives root's client.
// Package etcd tests that the role is that of the script.
func authenticate(t *testing.T, anonymous *clientv3.Client) *clientv3.Client {
	ctx := t.Context()
	_, err := anonymous.RoleAdd(ctx, workerUser)
	require.NoError(t, err)
	for _, prefix := range []string{"/registry/", "/kcp-migrate/"} {
		permission := clientv3.PermissionType(clientv3.PermReadWrite)
		_, err = anonymous.RoleGrantPermission(ctx, workerUser, prefix, clientv3.GetPrefixRangeEnd(prefix), permission)
		require.NoError(t, err)
	}
	for user, role := range map[string]string{"root": "root", workerUser: workerUser} {
		_, err = anonymous.UserAdd(ctx, user, password)
		require.NoError(t, err)
		_, err = anonymous.UserGrantRole(ctx, user, role)
		require.NoError(t, err)
	}
	_, err = anonymous.AuthEnable(ctx)
	require.NoError(t, err)
	root, err := clientv3.New(clientv3.Config{Endpoints: anonymous.Endpoints(), Username: "root", Password: password, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// awaitExpiry returns when every login of the workers has ended.
func (p pair) awaitExpiry(t *testing.T) {
	pending := map[*shard]*clientv3.Client{}
	for _, each := range []*shard{p.origin, p.destination} {
		answer, err := each.client.Authenticate(t.Context(), workerUser, password)
		require.NoError(t, err)
		login, err := clientv3.New(clientv3.Config{Endpoints: each.client.Endpoints(), Token: answer.Token, Logger: zap.NewNop()})
		require.NoError(t, err)
		defer login.Close()
		pending[each] = login
	}
	// A look renews the login, so it must come less often than it ends.
	require.Eventually(t, func() bool {
		for each, login := range pending {
			if _, err := login.Get(t.Context(), "/registry/"); err == nil {
				return false
			}
			delete(pending, each)
		}
		return true
	}, waitFor, 3*loginSeconds*time.Second)
}

func TestMove_WhoseLoginsExpireBeforeEveryStep_IsWhole(t *testing.T) {
	t.Parallel()
	p := newPairOf(t, newShardWith(t, "root", authenticating, shortLogins), newShardWith(t, "shard-1", authenticating, shortLogins))
	p.fatten(t, 50)
	p.awaitExpiry(t)
	fence := p.fence(t)
	p.awaitExpiry(t)
	p.enclose(t)
	p.awaitExpiry(t)
	p.copy(t, fence.Revision)
	p.awaitExpiry(t)
	verified := p.verify(t, first)
	require.True(t, verified.Match)
	p.awaitExpiry(t)
	p.commit(t)
	p.awaitExpiry(t)
	require.NoError(t, attempt(t, p.origin, p.origin.DropOriginLogicalCluster, activities.GuardInput{Guard: fenced}))
	p.awaitExpiry(t)
	require.NoError(t, attempt(t, p.origin, p.origin.DeleteOriginEntries, activities.DeleteInput{Guard: fenced, Revision: verified.OriginRevision}))
	p.awaitExpiry(t)
	require.NoError(t, attempt(t, p.origin, p.origin.Release, activities.GuardInput{Guard: fenced}))

	require.Empty(t, p.origin.export(t, "/registry/core/configmaps/"+tenant+"/"))
	require.Empty(t, p.origin.export(t, "/kcp-migrate/migrations/"))
	require.Len(t, p.destination.export(t, "/registry/core/configmaps/"+tenant+"/"), 52)
	require.False(t, p.destination.logicalCluster(t, tenant).Inactive())
}
