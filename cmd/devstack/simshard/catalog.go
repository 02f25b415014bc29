package simshard

import (
	"context"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard/follow"
)

// catalog is what one API server knows of CRDs and APIBindings, through informers that are
// blind while wildcard requests are cancelled (trap 1).
type catalog struct {
	layout layout
	mutex  sync.RWMutex
	// definitions are the CRDs by cluster and name; the cluster's own are named <plural>.<group>, bound ones by UID.
	definitions map[string]map[string]definition
	bindings    map[string]clusterBindings
}

// definition is what matters of a CRD.
type definition struct {
	schema.GroupResource
	kind, listKind, singular string
	shortNames               []string
	namespaced               bool
	versions                 []definedVersion
}

type definedVersion struct {
	name      string
	hasStatus bool
}

// clusterBindings is what the APIBindings of one cluster bind.
type clusterBindings struct {
	resources map[schema.GroupResource]boundResource
}

type boundResource struct {
	// binding is the name of the APIBinding.
	binding             string
	identity, schemaUID string
}

func newCatalog(layout layout) *catalog {
	return &catalog{layout: layout, definitions: map[string]map[string]definition{}, bindings: map[string]clusterBindings{}}
}

// run keeps the catalog up to date until ctx ends; ready is called once each part is complete.
func (c *catalog) run(ctx context.Context, client *clientv3.Client, live *contexts, ready func()) {
	var both, work sync.WaitGroup
	both.Add(2)
	definitions := &catalogPart{ready: both.Done, put: c.putDefinition, remove: c.removeDefinition, layout: c.layout}
	bindings := &catalogPart{ready: both.Done, put: c.putBinding, remove: c.removeBinding, layout: c.layout}
	for followed, part := range map[family]*catalogPart{crdFamily: definitions, bindingFamily: bindings} {
		follower := follow.New(client, c.layout.familyPrefix(followed), part)
		work.Go(func() { live.whileLive(ctx, wildcard, follower.Run) })
	}
	work.Go(func() {
		both.Wait()
		ready()
	})
	work.Wait()
}

// catalogPart hands over what one informer hears.
type catalogPart struct {
	layout layout
	once   sync.Once
	ready  func()
	put    func(place, object)
	remove func(place)
}

// Put skips what it cannot read: a CRD that nobody can decode serves nothing.
func (p *catalogPart) Put(key string, value []byte, _ int64) {
	at, isEntry := p.layout.parse(key)
	if !isEntry {
		return
	}
	if read, err := decode(at.family, value); err == nil {
		p.put(at, read)
	}
}

func (p *catalogPart) Delete(key string) {
	if at, isEntry := p.layout.parse(key); isEntry {
		p.remove(at)
	}
}

func (p *catalogPart) Synced() { p.once.Do(p.ready) }

func (c *catalog) putDefinition(at place, read object) {
	crd, isCRD := read.(*apiextensionsv1.CustomResourceDefinition)
	if !isCRD {
		return
	}
	defined := definition{
		GroupResource: schema.GroupResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural},
		kind:          crd.Spec.Names.Kind, listKind: crd.Spec.Names.ListKind, singular: crd.Spec.Names.Singular,
		shortNames: crd.Spec.Names.ShortNames, namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
	}
	for _, version := range crd.Spec.Versions {
		if version.Served {
			hasStatus := version.Subresources != nil && version.Subresources.Status != nil
			defined.versions = append(defined.versions, definedVersion{name: version.Name, hasStatus: hasStatus})
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.definitions[at.cluster] == nil {
		c.definitions[at.cluster] = map[string]definition{}
	}
	c.definitions[at.cluster][at.name] = defined
}

func (c *catalog) removeDefinition(at place) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.definitions[at.cluster], at.name)
}

func (c *catalog) putBinding(at place, read object) {
	c.removeBinding(at)
	bound := boundResources(read)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.bindings[at.cluster].resources == nil {
		c.bindings[at.cluster] = clusterBindings{resources: map[schema.GroupResource]boundResource{}}
	}
	for resource, binds := range bound {
		binds.binding = at.name
		c.bindings[at.cluster].resources[resource] = binds
	}
}

func (c *catalog) removeBinding(at place) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for resource, bound := range c.bindings[at.cluster].resources {
		if bound.binding == at.name {
			delete(c.bindings[at.cluster].resources, resource)
		}
	}
}

// boundResources reads status.boundResources of an APIBinding.
func boundResources(binding object) map[schema.GroupResource]boundResource {
	bound := map[schema.GroupResource]boundResource{}
	read, isUnstructured := binding.(*unstructured.Unstructured)
	if !isUnstructured {
		return bound
	}
	listed, _, _ := unstructured.NestedSlice(read.Object, "status", "boundResources")
	for _, item := range listed {
		fields, isMap := item.(map[string]any)
		if !isMap {
			continue
		}
		text := func(path ...string) string {
			value, _, _ := unstructured.NestedString(fields, path...)
			return value
		}
		bound[schema.GroupResource{Group: text("group"), Resource: text("resource")}] = boundResource{
			identity: text("schema", "identityHash"), schemaUID: text("schema", "UID"),
		}
	}
	return bound
}

// system are kcp's own types, which every logical cluster serves.
func (c *catalog) system() map[schema.GroupResource]definition {
	own := map[schema.GroupResource]definition{}
	for _, defined := range c.definitions[systemCRDs] {
		own[defined.GroupResource] = defined
	}
	return own
}

// boundAnywhere serves a wildcard request, which has to name the identity.
func (c *catalog) boundAnywhere(wanted schema.GroupResource, identity, version string) (resource, bool) {
	if identity == "" {
		return resource{}, false
	}
	for _, defined := range c.definitions[boundCRDs] {
		if defined.GroupResource == wanted {
			if served, ok := defined.serve(identity, version); ok {
				return served, true
			}
		}
	}
	return resource{}, false
}

// bound is the resource of a target under a given identity, if anyone on this shard has bound it.
func (c *catalog) bound(t target, identity string) (resource, bool) {
	c.mutex.RLock()
	defer c.mutex.RUnlock()
	return c.boundAnywhere(t.groupResource(), identity, t.version)
}

func (d definition) serve(segment, version string) (resource, bool) {
	index := slices.IndexFunc(d.versions, func(defined definedVersion) bool { return defined.name == version })
	if index < 0 {
		return resource{}, false
	}
	return resource{
		family:   family{group: d.Group, resource: d.Resource, segment: segment},
		apiGroup: d.Group, version: version, kind: d.kind, listKind: d.listKind, singular: d.singular,
		shortNames: d.shortNames, namespaced: d.namespaced, hasStatus: d.versions[index].hasStatus,
	}, true
}

func (d definition) serveAll(segment string) []resource {
	served := make([]resource, 0, len(d.versions))
	for _, version := range d.versions {
		if each, ok := d.serve(segment, version.name); ok {
			served = append(served, each)
		}
	}
	return served
}

func singularOf(kind string) string { return strings.ToLower(kind) }
