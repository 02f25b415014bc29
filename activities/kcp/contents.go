package kcp

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strconv"

	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// pageSize bounds one answer of a list; it is kubectl's.
const pageSize = 500

// Contents lists what a plan must speak of. It never asks for values.
func (s *Shard) Contents(ctx context.Context, logicalCluster string) (activities.Contents, error) {
	var contents activities.Contents
	err := errors.Join(
		s.readBindings(ctx, logicalCluster, &contents),
		s.readNames(ctx, logicalCluster, &contents),
		s.countTokens(ctx, logicalCluster, &contents),
	)
	if err != nil {
		return activities.Contents{}, err
	}
	return contents, nil
}

func (s *Shard) readBindings(ctx context.Context, logicalCluster string, contents *activities.Contents) error {
	every := query{path: listPath(logicalCluster, apiBindings)}
	return eachPage(ctx, s.servers, every, func(page apisv1alpha2.APIBindingList) {
		for _, binding := range page.Items {
			contents.Bindings = append(contents.Bindings, boundResources(binding)...)
		}
	})
}

func boundResources(binding apisv1alpha2.APIBinding) []activities.BoundResource {
	var bound []activities.BoundResource
	for _, resource := range binding.Status.BoundResources {
		bound = append(bound, activities.BoundResource{
			Binding:   binding.Name,
			Group:     resource.Group,
			Resource:  resource.Resource,
			Identity:  resource.Schema.IdentityHash,
			SchemaUID: resource.Schema.UID,
		})
	}
	return bound
}

// readNames takes a logical cluster that does not serve Workspaces for one that has none:
// they are bound, which not every type of workspace does.
func (s *Shard) readNames(ctx context.Context, logicalCluster string, contents *activities.Contents) error {
	children, err := s.names(ctx, query{path: listPath(logicalCluster, workspaces)})
	if err != nil && !errors.Is(err, activities.ErrNotFound) {
		return err
	}
	exports, err := s.names(ctx, query{path: listPath(logicalCluster, apiExports)})
	if err != nil {
		return err
	}
	contents.ChildWorkspaces, contents.APIExports = children, exports
	return nil
}

func (s *Shard) countTokens(ctx context.Context, logicalCluster string, contents *activities.Contents) error {
	accounts, err := s.names(ctx, query{path: listPath(logicalCluster, serviceAccounts)})
	if err != nil {
		return err
	}
	ofTokens := url.Values{"fieldSelector": {"type=" + string(corev1.SecretTypeServiceAccountToken)}}
	tokens, err := s.names(ctx, query{path: listPath(logicalCluster, secrets), params: ofTokens})
	if err != nil {
		return err
	}
	contents.ServiceAccounts, contents.TokenSecrets = len(accounts), len(tokens)
	return nil
}

// names lists objects by their metadata alone.
func (s *Shard) names(ctx context.Context, q query) ([]string, error) {
	q.accept = metadataListOnly
	var names []string
	err := eachPage(ctx, s.servers, q, func(page metav1.PartialObjectMetadataList) {
		for _, object := range page.Items {
			names = append(names, object.Name)
		}
	})
	return names, err
}

// eachPage visits a list page by page.
func eachPage[List any, Pointer interface {
	*List
	metav1.ListInterface
}](ctx context.Context, servers connections, q query, visit func(List)) error {
	params := url.Values{"limit": {strconv.Itoa(pageSize)}}
	maps.Copy(params, q.params)
	q.params = params
	for {
		var page List
		if err := servers.get(ctx, q, &page); err != nil {
			return err
		}
		visit(page)
		rest := Pointer(&page).GetContinue()
		if rest == "" {
			return nil
		}
		params.Set("continue", rest)
	}
}
