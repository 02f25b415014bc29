package simshard

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is one kind of object as a logical cluster serves it.
type resource struct {
	family
	// apiGroup is the group as the API spells it; version is the one asked for.
	apiGroup, version        string
	kind, listKind, singular string
	shortNames               []string
	namespaced               bool
	// hasStatus says that status is a subresource.
	hasStatus bool
}

func (r resource) groupVersion() string {
	return schema.GroupVersion{Group: r.apiGroup, Version: r.version}.String()
}

func (r resource) kindOf() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.apiGroup, Version: r.version, Kind: r.kind}
}

// at is the place of one of the resource's objects.
func (r resource) at(t target) place {
	return place{family: r.family, cluster: t.cluster, namespace: t.namespace, name: t.name}
}

// builtIns are the resources that every logical cluster serves without a CRD, as far as they are simulated.
var builtIns = []resource{
	builtIn("", "namespaces", "Namespace").cluster().withStatus().short("ns"),
	builtIn("", "configmaps", "ConfigMap").short("cm"),
	builtIn("", "secrets", "Secret"),
	builtIn("", "events", "Event").short("ev"),
	builtIn("", "serviceaccounts", "ServiceAccount").short("sa"),
	builtIn("", "resourcequotas", "ResourceQuota").withStatus().short("quota"),
	builtIn("rbac.authorization.k8s.io", "roles", "Role"),
	builtIn("rbac.authorization.k8s.io", "rolebindings", "RoleBinding"),
	builtIn("rbac.authorization.k8s.io", "clusterroles", "ClusterRole").cluster(),
	builtIn("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding").cluster(),
	builtIn("coordination.k8s.io", "leases", "Lease"),
	builtIn("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition").cluster().withStatus().short("crd", "crds"),
	builtIn("admissionregistration.k8s.io", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration").cluster(),
	builtIn("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration").cluster(),
	builtIn("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy").cluster().withStatus(),
	builtIn("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding").cluster(),
	builtIn("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest").cluster().withStatus().short("csr"),
}

// builtIn is a resource of version v1, as all of them are.
func builtIn(group, plural, kind string) resource {
	stored := group
	if group == "" {
		stored = "core"
	}
	return resource{
		family:   family{group: stored, resource: plural},
		apiGroup: group, version: "v1", kind: kind, listKind: kind + "List", singular: singularOf(kind), namespaced: true,
	}
}

func (r resource) cluster() resource {
	r.namespaced = false
	return r
}

func (r resource) withStatus() resource {
	r.hasStatus = true
	return r
}

func (r resource) short(names ...string) resource {
	r.shortNames = names
	return r
}

// lookup finds the resource that a request is for; kcp looks at its own types first, then
// at what is bound, then at the cluster's own CRDs (apiBindingAwareCRDClusterLister).
func (c *catalog) lookup(t target) (resource, bool) {
	for _, candidate := range builtIns {
		if candidate.apiGroup == t.group && candidate.resource == t.resource && candidate.version == t.version {
			return candidate, true
		}
	}
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	wanted := t.groupResource()
	if found, serves := c.system()[wanted]; serves {
		return found.serve(customResources, t.version)
	}
	if t.cluster == wildcard {
		return c.boundAnywhere(wanted, t.identity, t.version)
	}
	if bound, isBound := c.bindings[t.cluster].resources[wanted]; isBound {
		definition, present := c.definitions[boundCRDs][bound.schemaUID]
		if !present {
			return resource{}, false // kcp answers 404 where the shard lacks the bound CRD
		}
		return definition.serve(bound.identity, t.version)
	}
	if own, present := c.definitions[t.cluster][wanted.String()]; present {
		return own.serve(customResources, t.version)
	}
	return resource{}, false
}

// all lists every resource that a cluster serves, in every version.
func (c *catalog) all(cluster string) []resource {
	served := slices.Clone(builtIns)
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	for _, definition := range c.system() {
		served = append(served, definition.serveAll(customResources)...)
	}
	for _, bound := range c.bindings[cluster].resources {
		if definition, present := c.definitions[boundCRDs][bound.schemaUID]; present {
			served = append(served, definition.serveAll(bound.identity)...)
		}
	}
	if cluster != systemCRDs && cluster != boundCRDs {
		for _, definition := range c.definitions[cluster] {
			served = append(served, definition.serveAll(customResources)...)
		}
	}
	return served
}
