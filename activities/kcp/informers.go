package kcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

const (
	// sightPoll is how often the servers are asked whether they see a sign.
	sightPoll = 100 * time.Millisecond
	// signedPath is what a sign allows a user that nobody is to ask for. It must be a path that concerns the shard as a
	// whole: any other is denied in system:shard without a look at the roles
	// (kcp pkg/authorization/workspace_content_authorizer.go; seen).
	signedPath = "/metrics"
)

var (
	clusterRoles         = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	clusterRoleBindings  = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	subjectAccessReviews = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")
)

// sign is a role and its binding to a user of the same name, which appear in a server's answers only once its
// informers have seen both.
type sign struct {
	name string
	user string
}

// AwaitInformers returns once every API server's informers, those of ClusterRoles and ClusterRoleBindings, have seen
// what was written after the call began.
func (s *Shard) AwaitInformers(ctx context.Context, logicalCluster string) error {
	// One name a logical cluster, so that the next attempt finds what a dead one left; a user that no earlier sign names.
	shown := sign{name: "kcp-migrate:" + logicalCluster, user: "kcp-migrate:" + rand.Text()}
	if err := s.servers.show(ctx, shown); err != nil {
		return err
	}
	err := s.servers.awaitSight(ctx, shown)
	removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	return errors.Join(err, s.servers.remove(removing, shown))
}

// show writes the sign, in place of one that was left.
func (c connections) show(ctx context.Context, shown sign) error {
	if err := c.remove(ctx, shown); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: shown.name}
	role := rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{signedPath}, Verbs: []string{"get"}}}}
	binding := rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: shown.name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: shown.user}},
	}
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	binding.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"))
	return errors.Join(
		c.send(ctx, change{verb: http.MethodPost, path: listPath(keyspace.SystemShard, clusterRoles), body: role, contentType: contentTypeJSON}),
		c.send(ctx, change{verb: http.MethodPost, path: listPath(keyspace.SystemShard, clusterRoleBindings), body: binding, contentType: contentTypeJSON}),
	)
}

func (c connections) remove(ctx context.Context, shown sign) error {
	var failures []error
	for _, path := range []string{
		objectPath(keyspace.SystemShard, clusterRoleBindings, shown.name),
		objectPath(keyspace.SystemShard, clusterRoles, shown.name),
	} {
		err := c.send(ctx, change{verb: http.MethodDelete, path: path})
		if err != nil && !errors.Is(err, activities.ErrNotFound) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// awaitSight asks every server until each has seen the sign.
func (c connections) awaitSight(ctx context.Context, shown sign) error {
	ticker := time.NewTicker(sightPoll)
	defer ticker.Stop()
	look := check{of: "informers", ask: func(ctx context.Context, server connection) error { return server.sees(ctx, shown) }}
	for last := "not asked yet"; ; {
		failure := firstFailure(c.probe(ctx, look))
		if failure == "" {
			return nil
		}
		if ctx.Err() == nil { // else it says no more than that
			last = failure
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("await informers: %s: %w", last, ctx.Err())
		}
	}
}

func firstFailure(probes []activities.Probe) string {
	for _, probe := range probes {
		if !probe.OK {
			return probe.Server + ": " + probe.Detail
		}
	}
	return ""
}

// sees asks a server what the sign allows.
func (c connection) sees(ctx context.Context, shown sign) error {
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  shown.user,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: signedPath, Verb: "get"},
	}}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"))
	err := c.send(ctx, change{verb: http.MethodPost, path: listPath(keyspace.SystemShard, subjectAccessReviews), body: review, contentType: contentTypeJSON}, &review)
	switch {
	case err != nil:
		return other(err)
	case !review.Status.Allowed:
		return errors.New("have not caught up")
	}
	return nil
}
