package kcp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

func TestConnect_WithoutServers_AsksTheKubeconfigsAtItsRoot(t *testing.T) {
	server := startServer(t)
	all, err := connect(kubeconfigFor(t, server), "", nil)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, server.URL, all[0].server)
}

func TestConnect_WithAnotherContext_UsesItsCredentials(t *testing.T) {
	server := startServer(t)
	server.on("/version", reply(`{}`))
	weak, err := connect(kubeconfigFor(t, server), "weak", nil)
	require.NoError(t, err)
	require.ErrorIs(t, weak.get(t.Context(), query{path: "/version"}, nil), activities.ErrForbidden)
}

func TestConnect_WithBadConfiguration_SaysWhatToDo(t *testing.T) {
	server := startServer(t)
	good := kubeconfigFor(t, server)
	missing := filepath.Join(t.TempDir(), "missing.kubeconfig")
	broken := filepath.Join(t.TempDir(), "broken.kubeconfig")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	for name, one := range map[string]struct {
		kubeconfig, context, server string
		says                        []string
	}{
		"no file named":       {"", "", server.URL, []string{"no file is named"}},
		"missing file":        {missing, "", server.URL, []string{missing, "name a file that exists"}},
		"broken file":         {broken, "", server.URL, []string{broken, "check the file"}},
		"unknown context":     {good, "elsewhere", server.URL, []string{good, "elsewhere"}},
		"server without host": {good, "", "shard-1", []string{`"shard-1"`, "want https://host:port"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := connect(one.kubeconfig, one.context, []string{one.server})
			for _, text := range one.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

func TestGet_WhenOneServerCannotAnswer_AsksTheNext(t *testing.T) {
	t.Parallel()
	hung, down, blind, good := startServer(t), startServer(t), startServer(t), startServer(t)
	down.Close()
	hung.on("/version", hang)
	blind.on("/version", cancelled)
	good.on("/version", reply(`{"gitVersion":"v1"}`))
	all := connections{}
	for _, server := range []*fakeServer{down, hung, blind, good} {
		one, err := connect(kubeconfigFor(t, server), "", nil)
		require.NoError(t, err)
		all = append(all, one...)
	}
	var version struct{ GitVersion string }
	require.NoError(t, all.get(t.Context(), query{path: "/version"}, &version))
	require.Equal(t, "v1", version.GitVersion)
}

func TestGet_WhenNoServerAnswers_NamesEach(t *testing.T) {
	first, second := startServer(t), startServer(t)
	shard := newShard(t, first, second)
	first.Close()
	second.Close()
	err := shard.servers.get(t.Context(), query{path: "/version"}, nil)
	require.ErrorContains(t, err, first.URL)
	require.ErrorContains(t, err, second.URL)
}

func TestGet_WhenRefused_DoesNotAskTheNext(t *testing.T) {
	first, second := startServer(t), startServer(t)
	first.on("/version", forbidden)
	second.on("/version", reply(`{}`))
	err := newShard(t, first, second).servers.get(t.Context(), query{path: "/version"}, nil)
	require.ErrorIs(t, err, activities.ErrForbidden)
	require.Empty(t, second.requests("/version"))
}

func TestGet_WhenTheFenceRefuses_IsNoMatterOfRights(t *testing.T) {
	server := startServer(t)
	server.on("/fenced", fenced)
	err := newShard(t, server).servers.get(t.Context(), query{path: "/fenced"}, nil)
	require.ErrorContains(t, err, "marked inactive")
	require.NotErrorIs(t, err, activities.ErrForbidden)
}

func TestGet_WithACertificateOfAnotherAuthority_SaysSo(t *testing.T) {
	server := startServer(t)
	path := kubeconfigFor(t, server)
	config, err := clientcmd.LoadFromFile(path)
	require.NoError(t, err)
	config.Clusters["root"].CertificateAuthority = ""
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	all, err := connect(path, "", nil)
	require.NoError(t, err)
	require.ErrorContains(t, all.get(t.Context(), query{path: "/version"}, nil), "certificate signed by unknown authority")
}
