package simshard

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// rootCAName is the ConfigMap, one in every namespace, that holds the shard's CA under rootCAKey; token Secrets have the key too.
const (
	rootCAName = "kube-root-ca.crt"
	rootCAKey  = "ca.crt"
)

// item is what the meddlers remember of an object: enough to see that something is to be done without reading it again.
type item struct {
	place
	uid      types.UID
	owners   []types.UID
	created  time.Time
	deleting bool
	// staleCA says that it holds another shard's CA.
	staleCA bool
	// account is the ServiceAccount that a token Secret is for.
	account string
	// quota is what a ResourceQuota limits, and holds as used.
	quota *quota
	// schemas are the UIDs of what an APIBinding binds; holds are the families that go with an APIBinding or a CRD.
	schemas []string
	holds   []family
	// unbound says that an APIBinding was told that its LogicalCluster is missing.
	unbound bool
	// pending says that a Workspace waits for its logical cluster.
	pending bool
}

type quota struct {
	hard, used corev1.ResourceList
}

// inventory is what the meddlers' informers know of a shard.
type inventory struct {
	layout layout

	mutex   sync.RWMutex
	tenants map[string]map[place]item
	// authority is the shard's CA.
	authority string
}

func newInventory(layout layout) *inventory {
	return &inventory{layout: layout, tenants: map[string]map[place]item{}}
}

// put remembers an object; it gives false for keys that are no entries and values that nobody can read.
func (i *inventory) put(key string, value []byte) (place, bool) {
	at, isEntry := i.layout.parse(key)
	if !isEntry {
		return place{}, false
	}
	read, err := decode(at.family, value)
	if err != nil {
		return place{}, false
	}
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if i.tenants[at.cluster] == nil {
		i.tenants[at.cluster] = map[place]item{}
	}
	i.learnAuthority(at, read)
	i.tenants[at.cluster][at] = newItem(at, read, i.authority)
	return at, true
}

// learnAuthority takes the CA of the shard's own system cluster for the shard's: the
// fixtures hold what each shard's controllers had published.
func (i *inventory) learnAuthority(at place, read object) {
	published, isConfigMap := read.(*corev1.ConfigMap)
	if isConfigMap && at.cluster == systemShard && at.name == rootCAName {
		i.authority = published.Data[rootCAKey]
	}
}

func (i *inventory) remove(key string) (place, bool) {
	at, isEntry := i.layout.parse(key)
	if !isEntry {
		return place{}, false
	}
	i.mutex.Lock()
	defer i.mutex.Unlock()
	delete(i.tenants[at.cluster], at)
	return at, true
}

// tenant is a copy of what is known of one cluster.
func (i *inventory) tenant(cluster string) map[place]item {
	i.mutex.RLock()
	defer i.mutex.RUnlock()
	return maps.Clone(i.tenants[cluster])
}

func (i *inventory) clusters() []string {
	i.mutex.RLock()
	defer i.mutex.RUnlock()
	return slices.Collect(maps.Keys(i.tenants))
}

// ca is the shard's CA, empty where it is unknown.
func (i *inventory) ca() string {
	i.mutex.RLock()
	defer i.mutex.RUnlock()
	return i.authority
}

// boundSchemas are the UIDs of the schemas that any APIBinding on the shard uses.
func (i *inventory) boundSchemas() map[string]bool {
	i.mutex.RLock()
	defer i.mutex.RUnlock()
	used := map[string]bool{}
	for _, tenant := range i.tenants {
		for _, each := range tenant {
			for _, schema := range each.schemas {
				used[schema] = true
			}
		}
	}
	return used
}

func newItem(at place, read object, authority string) item {
	noted := item{
		place: at, uid: read.GetUID(), created: read.GetCreationTimestamp().Time, deleting: read.GetDeletionTimestamp() != nil,
	}
	for _, owner := range read.GetOwnerReferences() {
		noted.owners = append(noted.owners, owner.UID)
	}
	switch typed := read.(type) {
	case *corev1.ConfigMap:
		noted.staleCA = at.name == rootCAName && typed.Data[rootCAKey] != authority
	case *corev1.Secret:
		if typed.Type == corev1.SecretTypeServiceAccountToken {
			noted.account = typed.Annotations[corev1.ServiceAccountNameKey]
			noted.staleCA = string(typed.Data[rootCAKey]) != authority
		}
	case *corev1.ResourceQuota:
		noted.quota = &quota{hard: typed.Spec.Hard, used: typed.Status.Used}
	case *apiextensionsv1.CustomResourceDefinition:
		noted.holds = []family{{group: typed.Spec.Group, resource: typed.Spec.Names.Plural, segment: customResources}}
	case *unstructured.Unstructured:
		noted.readCustom(typed)
	}
	return noted
}

func (n *item) readCustom(read *unstructured.Unstructured) {
	switch {
	case n.family == logicalClusterFamily:
		// kcp deletes what one holds only for its finalizer (pkg/reconciler/core/logicalclusterdeletion).
		n.deleting = n.deleting && hasFinalizers(read)
	case n.family == bindingFamily:
		for resource, bound := range boundResources(read) {
			n.schemas = append(n.schemas, bound.schemaUID)
			n.holds = append(n.holds, family{group: resource.Group, resource: resource.Resource, segment: bound.identity})
		}
		n.unbound = strings.Contains(conditionReason(read, bindingUpToDate), logicalClusterNotFound)
	case n.isWorkspace():
		n.pending = phaseOf(read) != phaseReady
	}
}

func (n item) isWorkspace() bool { return n.group == workspaceGroup && n.resource == "workspaces" }
