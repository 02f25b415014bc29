package kcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// watched answers the canary's list, and its watch by standing until end says how it goes on.
func watched(end <-chan struct{}, then http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			empty(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-end:
			then(w, r)
		case <-r.Context().Done():
		}
	}
}

func cleanly(http.ResponseWriter, *http.Request) {}

func abruptly(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func openCanaries(t *testing.T, servers ...*fakeServer) activities.Canaries {
	t.Helper()
	canaries, err := newShard(t, servers...).OpenCanaries(t.Context(), "c1")
	require.NoError(t, err)
	t.Cleanup(canaries.Close)
	return canaries
}

func TestCanaries_WhenEveryServerCuts_AreCut(t *testing.T) {
	for name, end := range map[string]http.HandlerFunc{
		"cleanly":  cleanly,
		"abruptly": abruptly,
		"with an error event": func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"type":"ERROR","object":{"kind":"Status","code":504}}`))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
		"after a bookmark": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"type":"BOOKMARK","object":{"kind":"Namespace"}}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cut := make(chan struct{})
			first, second := startServer(t), startServer(t)
			first.on(clusterNamespaces, watched(cut, end))
			second.on(clusterNamespaces, watched(cut, end))
			canaries := openCanaries(t, first, second)
			close(cut)
			uncut, err := canaries.AwaitCut(t.Context())
			require.NoError(t, err)
			require.Empty(t, uncut)
		})
	}
}

// openCanariesOfWhichOneStands gives the server through which it does; the other's is being cut.
func openCanariesOfWhichOneStands(t *testing.T) (activities.Canaries, *fakeServer) {
	t.Helper()
	cut := make(chan struct{})
	first, second := startServer(t), startServer(t)
	first.on(clusterNamespaces, watched(cut, cleanly))
	second.on(clusterNamespaces, watched(nil, cleanly))
	canaries := openCanaries(t, first, second)
	close(cut)
	return canaries, second
}

func TestCanaries_WhenOneStands_NameItsServer(t *testing.T) {
	canaries, second := openCanariesOfWhichOneStands(t)
	require.Eventually(t, func() bool {
		waiting, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		uncut, err := canaries.AwaitCut(waiting)
		return errors.Is(err, context.DeadlineExceeded) && slices.Equal(uncut, []string{second.URL})
	}, time.Minute, time.Millisecond)
}

func TestCanaries_OnceNudged_CanBeAwaitedAgain(t *testing.T) {
	cut := make(chan struct{})
	server := startServer(t)
	server.on(clusterNamespaces, watched(cut, cleanly))
	canaries := openCanaries(t, server)
	waiting, cancel := context.WithCancel(t.Context())
	cancel()
	uncut, err := canaries.AwaitCut(waiting)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{server.URL}, uncut)
	close(cut)
	uncut, err = canaries.AwaitCut(t.Context())
	require.NoError(t, err)
	require.Empty(t, uncut)
}

func TestCanaries_OutliveTheContextThatOpenedThem(t *testing.T) {
	server := startServer(t)
	server.on(clusterNamespaces, watched(nil, cleanly))
	opening, cancel := context.WithCancel(t.Context())
	canaries, err := newShard(t, server).OpenCanaries(opening, "c1")
	require.NoError(t, err)
	cancel()
	waiting, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	uncut, err := canaries.AwaitCut(waiting)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, uncut, 1)
	canaries.Close()
	uncut, err = canaries.AwaitCut(waiting)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Len(t, uncut, 1, "a canary that was closed here proves nothing")
}

func TestCanaries_NeverReconnect(t *testing.T) {
	cut := make(chan struct{})
	server := startServer(t)
	server.on(clusterNamespaces, watched(cut, cleanly))
	canaries := openCanaries(t, server)
	close(cut)
	_, err := canaries.AwaitCut(t.Context())
	require.NoError(t, err)
	canaries.Close()
	require.Len(t, server.requests(clusterNamespaces), 2, "one list, one watch")
}

func TestCanaries_WatchFromNowOn_WithoutValues(t *testing.T) {
	server := startServer(t)
	server.on(clusterNamespaces, watched(nil, cleanly))
	openCanaries(t, server)
	watch := server.requests(clusterNamespaces)[1]
	require.Equal(t, "7", watch.URL.Query().Get("resourceVersion"))
	require.Equal(t, "metadata.name=kcp-migrate.canary", watch.URL.Query().Get("fieldSelector"))
	require.Contains(t, watch.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func TestOpenCanaries_WhenOneServerRefuses_LeavesNoneStanding(t *testing.T) {
	good, closed := startServer(t), startServer(t)
	gone := make(chan struct{})
	good.on(clusterNamespaces, func(w http.ResponseWriter, r *http.Request) {
		watched(nil, cleanly)(w, r)
		if r.URL.Query().Get("watch") != "" {
			close(gone)
		}
	})
	closed.on(clusterNamespaces, fenced)
	_, err := newShard(t, good, closed).OpenCanaries(t.Context(), "c1")
	require.ErrorContains(t, err, "marked inactive")
	require.ErrorContains(t, err, closed.URL)
	if len(good.requests(clusterNamespaces)) > 1 {
		<-gone
	}
}

func TestOpenCanaries_WhenAServerHangs_GivesUp(t *testing.T) {
	server := startServer(t)
	server.on(clusterNamespaces, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			empty(w, r)
			return
		}
		hang(w, r)
	})
	opening, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := newShard(t, server).OpenCanaries(opening, "c1")
	require.ErrorContains(t, err, server.URL)
}

func TestReadToEnd_TellsACutFromABrokenConnection(t *testing.T) {
	for name, one := range map[string]struct {
		end   error
		isCut bool
	}{
		"end of the answer":      {io.EOF, true},
		"stream reset":           {http2.StreamError{StreamID: 1, Code: http2.ErrCodeInternal}, true},
		"connection closed":      {io.ErrUnexpectedEOF, false},
		"connection reset":       {syscall.ECONNRESET, false},
		"read timed out":         {os.ErrDeadlineExceeded, false},
		"pings unanswered":       {errors.New("http2: client connection lost"), false},
		"closed by the canaries": {context.Canceled, false},
	} {
		t.Run(name, func(t *testing.T) {
			watching := io.MultiReader(strings.NewReader(`{"type":"BOOKMARK"}`), iotest.ErrReader(one.end))
			err := readToEnd(watching)
			if one.isCut {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, one.end)
		})
	}
}

// What breaks a connection need not be the server: its other clients may go on watching.
func TestCanaries_WhenAConnectionBreaks_ProveNothing(t *testing.T) {
	canaries, second := openCanariesOfWhichOneStands(t)
	second.CloseClientConnections()
	_, err := canaries.AwaitCut(t.Context())
	require.ErrorContains(t, err, "canary watch through "+second.URL+" was lost")
}
