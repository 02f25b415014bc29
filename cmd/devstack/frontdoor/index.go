package frontdoor

import (
	"encoding/json"
	"strings"
	"sync"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard/follow"
)

const (
	// storagePrefix is where kcp's shards keep their objects.
	storagePrefix = "/registry/"

	logicalClusters = storagePrefix + "core.kcp.io/logicalclusters/customresources/"
	// workspaces are bound resources: the identity of kcp's own export follows.
	workspaces = storagePrefix + "tenancy.kcp.io/workspaces/"
)

// index knows which shard a logical cluster lives on and which Workspace leads where.
type index struct {
	mutex sync.RWMutex
	// shards is the shard that had the last word, by logical cluster.
	shards map[string]string
	// children is the logical cluster that a Workspace stands for, by shard and by the Workspace's place.
	children map[string]map[workspace]string
}

// workspace is the place of a Workspace: its parent's logical cluster, and its name.
type workspace struct{ parent, name string }

func newIndex() *index {
	return &index{shards: map[string]string{}, children: map[string]map[workspace]string{}}
}

// lookup resolves a logical cluster's name or a path to the logical cluster and its shard.
// The shards' own system clusters, with a colon in their names, are found by neither.
func (i *index) lookup(path string) (cluster, shard string, found bool) {
	i.mutex.RLock()
	defer i.mutex.RUnlock()
	segments := strings.Split(path, ":")
	cluster = segments[0]
	for _, name := range segments[1:] {
		if shard, found = i.shards[cluster]; !found {
			return "", "", false
		}
		if cluster, found = i.children[shard][workspace{parent: cluster, name: name}]; !found {
			return "", "", false
		}
	}
	shard, found = i.shards[cluster]
	return cluster, shard, found
}

// clusterInformer reports one shard's LogicalClusters to the index.
type clusterInformer struct {
	*index
	shard string
	ready func()
}

var (
	_ follow.Handler = (*clusterInformer)(nil)
	_ follow.Handler = (*workspaceInformer)(nil)
)

// Put routes the cluster to this shard, whoever else has its object.
func (c *clusterInformer) Put(key string, _ []byte, _ int64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.shards[clusterOf(key)] = c.shard
}

// Delete forgets the cluster if this shard had the last word, and only then.
func (c *clusterInformer) Delete(key string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.shards[clusterOf(key)] == c.shard {
		delete(c.shards, clusterOf(key))
	}
}

// Synced reports the first complete list.
func (c *clusterInformer) Synced() { c.ready() }

func clusterOf(key string) string {
	cluster, _, _ := strings.Cut(strings.TrimPrefix(key, logicalClusters), "/")
	return cluster
}

// workspaceInformer reports one shard's Workspaces to the index.
type workspaceInformer struct {
	*index
	shard string
	ready func()
}

// Put remembers where the Workspace leads; one that was not scheduled yet leads nowhere.
func (w *workspaceInformer) Put(key string, value []byte, _ int64) {
	var read struct {
		Spec struct {
			Cluster string `json:"cluster"`
		} `json:"spec"`
		Status struct {
			Phase string `json:"phase"`
		} `json:"status"`
	}
	at, isWorkspace := workspaceOf(key)
	if err := json.Unmarshal(value, &read); err != nil || !isWorkspace || read.Status.Phase == "Scheduling" {
		return // what cannot be read cannot be routed to
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.children[w.shard] == nil {
		w.children[w.shard] = map[workspace]string{}
	}
	w.children[w.shard][at] = read.Spec.Cluster
}

// Delete forgets the Workspace.
func (w *workspaceInformer) Delete(key string) {
	if at, isWorkspace := workspaceOf(key); isWorkspace {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		delete(w.children[w.shard], at)
	}
}

// Synced reports the first complete list.
func (w *workspaceInformer) Synced() { w.ready() }

func workspaceOf(key string) (workspace, bool) {
	parts := strings.Split(strings.TrimPrefix(key, workspaces), "/")
	if len(parts) != 3 {
		return workspace{}, false
	}
	return workspace{parent: parts[1], name: parts[2]}, true
}
