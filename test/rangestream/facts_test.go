package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What docs/rangestream.md says of RangeStream, shown on a real etcd 3.7.

// many is more than a stream may be ahead of its reader, so that its end has not left the server when its beginning is read.
const many, valueBytes = 3000, 10_000

// etcd37 is one that a test may stop.
type etcd37 struct {
	*embed.Etcd
	stop func()
}

func startEtcd37(t *testing.T) (*clientv3.Client, etcd37) {
	t.Helper()
	config := embed.NewConfig()
	config.Dir = t.TempDir()
	config.LogLevel = "fatal"
	config.UnsafeNoFsync = true
	config.BcryptCost = 4
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenClientUrls, config.AdvertiseClientUrls = loopback, loopback
	config.ListenPeerUrls, config.AdvertisePeerUrls = loopback, loopback
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	require.NoError(t, err)
	started := etcd37{server, sync.OnceFunc(server.Close)}
	t.Cleanup(started.stop)
	<-server.Server.ReadyNotify()
	return connect(t, started, clientv3.Config{}), started
}

func connect(t *testing.T, server etcd37, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Endpoints = []string{server.Clients[0].Addr().String()}
	client, err := clientv3.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// putMany gives the revision at which all are there.
func putMany(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	value := strings.Repeat("v", valueBytes)
	var revision int64
	for i := range many {
		response, err := client.Put(t.Context(), fmt.Sprintf("/registry/%05d", i), value)
		require.NoError(t, err)
		revision = response.Header.Revision
	}
	return revision
}

func open(t *testing.T, client *clientv3.Client, from string, options ...clientv3.OpOption) clientv3.GetStreamChan {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	stream, err := client.GetStream(ctx, from, append(options, clientv3.WithRange("/registry0"))...)
	require.NoError(t, err)
	return stream
}

// rest reads a stream to its end.
func rest(stream clientv3.GetStreamChan) (keys []*mvccpb.KeyValue, headers int, err error) {
	for chunk := range stream {
		if chunk.Err() != nil {
			return keys, headers, chunk.Err()
		}
		keys = append(keys, chunk.Kvs...)
		if chunk.Header != nil {
			headers++
		}
	}
	return keys, headers, nil
}

func TestRangeStream_IsOfOneRevisionThatOnlyItsLastMessageTells(t *testing.T) {
	client, _ := startEtcd37(t)
	revision := putMany(t, client)
	stream := open(t, client, "/registry/")
	first := <-stream
	require.NoError(t, first.Err())
	require.Len(t, first.Kvs, 10)
	require.Nil(t, first.Header)
	_, err := client.Delete(t.Context(), "/registry/", clientv3.WithPrefix())
	require.NoError(t, err)

	var last clientv3.RangeStreamResponse
	read := len(first.Kvs)
	for chunk := range stream {
		require.NoError(t, chunk.Err())
		read, last = read+len(chunk.Kvs), chunk
	}
	require.Equal(t, many, read, "deleted meanwhile, and read all the same")
	require.Equal(t, revision, last.Header.Revision)
	require.Equal(t, int64(many), last.Count)
}

func TestRangeStream_WhenItBreaks_IsResumedByRevisionAndLastKey(t *testing.T) {
	client, _ := startEtcd37(t)
	revision := putMany(t, client)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := client.GetStream(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(revision))
	require.NoError(t, err)
	first := <-stream
	cancel()
	_, _, err = rest(stream)
	require.Error(t, err)
	_, err = client.Put(t.Context(), "/registry/00500-later", "")
	require.NoError(t, err)

	behind := string(first.Kvs[len(first.Kvs)-1].Key) + "\x00"
	keys, _, err := rest(open(t, client, behind, clientv3.WithRev(revision)))
	require.NoError(t, err)
	require.Len(t, keys, many-len(first.Kvs))
}

func TestRangeStream_WhenItsRevisionIsCompactedMidway_EndsInErrCompacted(t *testing.T) {
	client, _ := startEtcd37(t)
	revision := putMany(t, client)
	stream := open(t, client, "/registry/", clientv3.WithRev(revision))
	<-stream
	later, err := client.Put(t.Context(), "/registry/00000", "later")
	require.NoError(t, err)
	_, err = client.Compact(t.Context(), later.Header.Revision)
	require.NoError(t, err)
	_, headers, err := rest(stream) // behind the first chunk nothing more has to have come
	require.ErrorIs(t, err, rpctypes.ErrCompacted)
	require.Zero(t, headers)
}

func TestRangeStream_WhenTheServerStopsMidway_EndsInAnError(t *testing.T) {
	client, server := startEtcd37(t)
	putMany(t, client)
	stream := open(t, client, "/registry/")
	<-stream
	server.stop()
	_, headers, err := rest(stream)
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Zero(t, headers)
}

// The last message, header and all, may have come and the stream still fail: only its end without an error is one.
func TestRangeStream_WhenRightsChangeMidway_FailsAfterItsLastMessage(t *testing.T) {
	root, server := startEtcd37(t)
	putMany(t, root)
	_, err := root.UserAdd(t.Context(), "root", "root")
	require.NoError(t, err)
	_, err = root.UserGrantRole(t.Context(), "root", "root")
	require.NoError(t, err)
	_, err = root.AuthEnable(t.Context())
	require.NoError(t, err)
	user := connect(t, server, clientv3.Config{Username: "root", Password: "root"})
	stream := open(t, user, "/registry/")
	<-stream
	_, err = user.UserAdd(t.Context(), "somebody", "else")
	require.NoError(t, err)
	keys, headers, err := rest(stream)
	require.ErrorIs(t, err, rpctypes.ErrAuthOldRevision)
	require.Len(t, keys, many-10)
	require.Equal(t, 1, headers)
}

func TestRangeStream_OfKeysAlone_DoesNotTellLeases(t *testing.T) {
	client, _ := startEtcd37(t)
	lease, err := client.Grant(t.Context(), 3600)
	require.NoError(t, err)
	_, err = client.Put(t.Context(), "/registry/event", "e", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	whole, _, err := rest(open(t, client, "/registry/"))
	require.NoError(t, err)
	require.Equal(t, int64(lease.ID), whole[0].Lease)
	keys, _, err := rest(open(t, client, "/registry/", clientv3.WithKeysOnly()))
	require.NoError(t, err)
	require.Zero(t, keys[0].Lease)
	page, err := client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.Zero(t, page.Kvs[0].Lease, "nor does a Range, of etcd 3.7")
}

func TestRangeStream_ByWrappersSortsAndFilters_IsUnimplemented(t *testing.T) {
	client, _ := startEtcd37(t)
	_, err := namespace.NewKV(client, "/registry/").GetStream(t.Context(), "x")
	require.Equal(t, codes.Unimplemented, status.Code(err))
	for _, option := range []clientv3.OpOption{
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend), clientv3.WithMinModRev(1), clientv3.WithMaxCreateRev(1),
	} {
		_, _, err := rest(open(t, client, "/registry/", option))
		require.Equal(t, codes.Unimplemented, status.Code(err), "the call itself succeeds, and the stream begins with the refusal")
	}
}
