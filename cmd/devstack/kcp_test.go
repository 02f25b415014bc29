package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/installation"
)

var (
	workspaces = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	cowboys    = schema.GroupVersionResource{Group: "wild.west", Version: "v1", Resource: "cowboys"}
	sheriffs   = schema.GroupVersionResource{Group: "wild.west", Version: "v1", Resource: "sheriffs"}
	gizmos     = schema.GroupVersionResource{Group: "acme.io", Version: "v1", Resource: "gizmos"}
)

func requireTenants(t *testing.T, state installation.State) {
	t.Helper()
	shardOf := map[string]string{"provider": "root", "consumer": "root", "neighbour": "root", "remote": "shard-1"}
	root := workspace(t, state, "root")
	for name, shard := range shardOf {
		found, err := root.Resource(workspaces).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, shard, found.GetAnnotations()["core.kcp.io/shard"], name)
	}
	for _, name := range []string{"consumer", "neighbour", "remote"} {
		tenant := workspace(t, state, "root:"+name)
		require.Len(t, list(t, tenant.Resource(gizmos)), 10, name)
		require.Len(t, list(t, tenant.Resource(sheriffs)), 10, name)
		require.Len(t, list(t, tenant.Resource(cowboys).Namespace("default")), 10, name)
	}
	consumer := workspace(t, state, "root:consumer")
	const kubeRootCA, big, fillers = 1, 1, 20
	require.Len(t, list(t, consumer.Resource(configMaps).Namespace("default")), 40+kubeRootCA+big+fillers)
	require.Len(t, list(t, consumer.Resource(workspaces)), 1)

	consumerObject, err := root.Resource(workspaces).Get(t.Context(), "consumer", metav1.GetOptions{})
	require.NoError(t, err)
	consumerCluster, _, err := unstructured.NestedString(consumerObject.Object, "spec", "cluster")
	require.NoError(t, err)
	trap := workspace(t, state, "root:neighbour").Resource(cowboys).Namespace(consumerCluster)
	require.Len(t, list(t, trap), 3, "the neighbour's namespace that is named like the consumer's logical cluster")
}

func workspace(t *testing.T, state installation.State, path string) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", state.Kubeconfig)
	require.NoError(t, err)
	config.Host = state.FrontProxies[0] + "/clusters/" + path
	dynamicClient, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return dynamicClient
}

func list(t *testing.T, resource dynamic.ResourceInterface) []unstructured.Unstructured {
	t.Helper()
	found, err := resource.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return found.Items
}

// childNamed finds a child process by the name of its program.
func childNamed(t *testing.T, parent int, name string) *os.Process {
	t.Helper()
	commandLines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range commandLines {
		commandLine, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		program, _, _ := strings.Cut(string(commandLine), "\x00")
		if filepath.Base(program) != name || parentOf(file) != parent {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(t, err)
		process, err := os.FindProcess(pid)
		require.NoError(t, err)
		return process
	}
	require.FailNow(t, "no such child", name)
	return nil
}

// parentOf reads the fourth field of /proc/<pid>/stat, which comes after "(<program>) <state> ".
func parentOf(commandLineFile string) int {
	stat, err := os.ReadFile(filepath.Join(filepath.Dir(commandLineFile), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return parent
}
