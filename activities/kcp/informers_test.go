package kcp

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	rolesPath        = "/clusters/system:shard/apis/rbac.authorization.k8s.io/v1/clusterroles"
	roleBindingsPath = "/clusters/system:shard/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	reviewsPath      = "/clusters/system:shard/apis/authorization.k8s.io/v1/subjectaccessreviews"
	signName         = "/kcp-migrate:" + tenant
)

// informed is what the servers of one shard share.
type informed struct {
	binding atomic.Pointer[rbacv1.ClusterRoleBinding]
}

// informs has a server keep what a sign consists of; it sees that from the third question on.
func (i *informed) informs(t *testing.T, server *fakeServer) {
	t.Helper()
	asked := atomic.Int32{}
	server.on(rolesPath, reply(`{}`))
	server.on(rolesPath+signName, reply(`{}`))
	server.on(roleBindingsPath, func(w http.ResponseWriter, r *http.Request) {
		var binding rbacv1.ClusterRoleBinding
		if err := json.NewDecoder(r.Body).Decode(&binding); err != nil {
			t.Error(err)
		}
		i.binding.Store(&binding)
		reply(`{}`)(w, r)
	})
	server.on(roleBindingsPath+signName, func(w http.ResponseWriter, r *http.Request) {
		i.binding.Store(nil)
		reply(`{}`)(w, r)
	})
	server.on(reviewsPath, func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if json.NewDecoder(r.Body).Decode(&review) != nil {
			return // the client has gone
		}
		binding := i.binding.Load()
		review.Status.Allowed = binding != nil && binding.Subjects[0].Name == review.Spec.User && asked.Add(1) > 2
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	})
}

func TestAwaitInformers_ReturnsOnceEveryServerHasSeenTheSign_AndTakesItAway(t *testing.T) {
	servers := []*fakeServer{startServer(t), startServer(t)}
	var shared informed
	for _, server := range servers {
		shared.informs(t, server)
	}
	require.NoError(t, newShard(t, servers...).AwaitInformers(t.Context(), tenant))

	for _, server := range servers {
		require.GreaterOrEqual(t, len(server.requests(reviewsPath)), 3)
	}
	require.Nil(t, shared.binding.Load(), "the sign is gone")
	require.Len(t, servers[0].requests(rolesPath+signName), 2, "one that was left is removed first, this one at the end")
}

func TestAwaitInformers_WhenOneServerStaysBlind_SaysWhichAndTakesTheSignAway(t *testing.T) {
	seeing, blind := startServer(t), startServer(t)
	var shared informed
	shared.informs(t, seeing)
	ctx, cancel := context.WithCancel(t.Context())
	blind.on(reviewsPath, func(w http.ResponseWriter, r *http.Request) {
		if len(blind.requests(reviewsPath)) > 5 {
			cancel()
		}
		reply(`{"status":{"allowed":false}}`)(w, r)
	})
	err := newShard(t, seeing, blind).AwaitInformers(ctx, tenant)

	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, blind.URL)
	require.Nil(t, shared.binding.Load())
}
