package etcd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const (
	workerUser = "kcp-migrate"
	password   = "right"
)

// roleScript makes the role that a worker's user has.
var roleScript = filepath.Join("..", "..", "deploy", "rights", "etcd.sh")

var grantLine = regexp.MustCompile(`(?m)^etcdctl role grant-permission kcp-migrate --prefix readwrite (\S+)$`)

// grantedPrefixes are what roleScript allows for a storage prefix.
func grantedPrefixes(storagePrefix string) ([]string, error) {
	script, err := os.ReadFile(roleScript)
	if err != nil {
		return nil, err
	}
	lines := strings.Count(string(script), "grant-permission")
	matches := grantLine.FindAllStringSubmatch(string(script), -1)
	if len(matches) != lines || lines == 0 {
		return nil, fmt.Errorf("%s grants %d times, %d of them understood", roleScript, lines, len(matches))
	}
	var prefixes []string
	for _, match := range matches {
		prefixes = append(prefixes, strings.ReplaceAll(strings.Trim(match[1], `"`), "$prefix", storagePrefix))
	}
	return prefixes, nil
}

// enableAuthentication makes root, and a worker's user with the rights of roleScript for the prefixes of the tests.
func enableAuthentication(endpoints []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.RoleAdd(ctx, workerUser); err != nil {
		return err
	}
	for _, storagePrefix := range []string{"/registry", "/destination", otherPrefix} {
		prefixes, err := grantedPrefixes(storagePrefix)
		if err != nil {
			return err
		}
		for _, prefix := range prefixes {
			permission := clientv3.PermissionType(clientv3.PermReadWrite)
			if _, err := client.RoleGrantPermission(ctx, workerUser, prefix, clientv3.GetPrefixRangeEnd(prefix), permission); err != nil {
				return err
			}
		}
	}
	for user, role := range map[string]string{"root": "root", workerUser: workerUser} {
		if _, err := client.UserAdd(ctx, user, password); err != nil {
			return err
		}
		if _, err := client.UserGrantRole(ctx, user, role); err != nil {
			return err
		}
	}
	_, err = client.AuthEnable(ctx)
	return err
}

func TestRole_LetsAWorkerReachNothingBesideKcpsKeysAndItsOwn(t *testing.T) {
	eachServer(t, func(t *testing.T, server *server) {
		if !server.authenticates {
			t.Skip("everybody may do everything here")
		}
		ctx, store := t.Context(), server.open(t)
		for _, key := range []string{"/registryx/y", "/kcp-migrate", "/", "/another"} {
			_, err := store.client.Get(ctx, key)
			require.ErrorIs(t, translate(err), activities.ErrForbidden, key)
			_, err = store.client.Put(ctx, key, "x")
			require.ErrorIs(t, translate(err), activities.ErrForbidden, key)
		}
		_, err := store.client.UserList(ctx)
		require.ErrorIs(t, translate(err), activities.ErrForbidden)
		_, err = store.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		if err != nil { // etcd 3.4 lets everybody
			require.ErrorIs(t, translate(err), activities.ErrForbidden)
		}
	})
}
