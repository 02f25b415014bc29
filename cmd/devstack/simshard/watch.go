package simshard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkInterval is about how often an API server sends bookmarks.
const bookmarkInterval = time.Minute

// watcher sends the events of one watch request.
type watcher struct {
	server   *apiServer
	resource resource
	target   target
	form     form
	matches  func(object) bool
	writer   http.ResponseWriter
	encoder  *json.Encoder
	// bookmarks says that the client asked for them.
	bookmarks bool
}

// watch answers a watch request. As on a real API server, whatever goes wrong after the
// parameters were read is an event of type ERROR, not a status code.
func (a *apiServer) watch(writer http.ResponseWriter, request *http.Request, r resource, t target) error {
	query := request.URL.Query()
	matches, err := parseSelector(query)
	if err != nil {
		return err
	}
	seconds, err := parseRevision(query.Get("timeoutSeconds"))
	if err != nil {
		return err
	}
	ctx := request.Context()
	if seconds > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
		ctx = limited
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(http.StatusOK)
	w := &watcher{
		server: a, resource: r, target: t, form: acceptedForm(request), matches: matches,
		writer: writer, encoder: json.NewEncoder(writer), bookmarks: query.Get("allowWatchBookmarks") == "true",
	}
	w.flush()
	if err := w.run(ctx, query); err != nil && ctx.Err() == nil {
		status := statusOf(err)
		return w.send(watch.Error, &status)
	}
	return nil
}

func (w *watcher) run(ctx context.Context, query url.Values) error {
	from, err := parseRevision(query.Get("resourceVersion"))
	if err != nil {
		return err
	}
	initial := query.Get("sendInitialEvents")
	switch {
	case initial == "true" || initial == "" && from == 0:
		// A watch-list waits for its revision; a plain watch from nowhere begins with what there is.
		if err := w.server.store.awaitRevision(ctx, from); err != nil {
			return err
		}
		if from, err = w.sendInitial(ctx, initial == "true"); err != nil {
			return err
		}
	case from == 0:
		if from, err = w.server.store.revision(ctx); err != nil {
			return err
		}
	case from < w.server.oldest:
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", from, w.server.oldest))
	}
	return w.follow(ctx, from)
}

// sendInitial sends everything that matches as added and, for a watch-list, the bookmark that ends it.
func (w *watcher) sendInitial(ctx context.Context, ends bool) (int64, error) {
	asked := pageRequest{family: w.resource.family, cluster: w.target.cluster, namespace: w.target.namespace}
	listed, err := w.server.store.list(ctx, asked)
	if err != nil {
		return 0, err
	}
	for _, item := range listed.items {
		if !w.selects(item) {
			continue
		}
		if err := w.send(watch.Added, w.form.shape(w.resource, item)); err != nil {
			return 0, err
		}
	}
	if ends {
		if err := w.bookmark(listed.revision, map[string]string{metav1.InitialEventsAnnotationKey: "true"}); err != nil {
			return 0, err
		}
	}
	w.flush()
	return listed.revision, nil
}

// follow sends what happens after a revision. etcd itself accepts one that lies ahead and
// stays silent until its counter gets there: the deaf watch of kcp #4250.
func (w *watcher) follow(ctx context.Context, after int64) error {
	store := w.server.store
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	prefix := store.layout.rangePrefix(w.resource.family, w.target.cluster, w.target.namespace)
	changes := store.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(after+1))
	tick := time.NewTicker(bookmarkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
			if err := store.client.RequestProgress(ctx); err != nil {
				return err
			}
		case response, open := <-changes:
			if !open {
				return ctx.Err()
			}
			if err := w.sendResponse(response, after); err != nil {
				return err
			}
		}
	}
}

func (w *watcher) sendResponse(response clientv3.WatchResponse, after int64) error {
	if response.CompactRevision != 0 {
		return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", after, response.CompactRevision))
	}
	if err := response.Err(); err != nil {
		return err
	}
	if response.IsProgressNotify() && w.bookmarks && response.Header.Revision > after {
		if err := w.bookmark(response.Header.Revision, nil); err != nil {
			return err
		}
	}
	for _, event := range response.Events {
		if err := w.sendEvent(event); err != nil {
			return err
		}
	}
	w.flush()
	return nil
}

// sendEvent tells a change as the selectors see it: what begins to match is added, what ceases to is deleted.
func (w *watcher) sendEvent(event *clientv3.Event) error {
	at, isEntry := w.server.store.layout.parse(string(event.Kv.Key))
	if !isEntry || at.family != w.resource.family {
		return nil
	}
	var before, now object
	var err error
	if event.PrevKv != nil {
		if before, err = w.server.store.read(at, event.PrevKv.Value, event.Kv.ModRevision); err != nil {
			return err
		}
	}
	if event.Type == clientv3.EventTypePut {
		if now, err = w.server.store.read(at, event.Kv.Value, event.Kv.ModRevision); err != nil {
			return err
		}
	}
	did, does := before != nil && w.selects(before), now != nil && w.selects(now)
	switch {
	case did && does:
		return w.send(watch.Modified, w.form.shape(w.resource, now))
	case does:
		return w.send(watch.Added, w.form.shape(w.resource, now))
	case did:
		return w.send(watch.Deleted, w.form.shape(w.resource, before))
	}
	return nil
}

// selects also honours a name in the URL.
func (w *watcher) selects(each object) bool {
	return (w.target.name == "" || w.target.name == each.GetName()) && w.matches(each)
}

func (w *watcher) bookmark(revision int64, annotations map[string]string) error {
	marked := &unstructured.Unstructured{}
	marked.SetGroupVersionKind(w.resource.kindOf())
	marked.SetResourceVersion(strconv.FormatInt(revision, 10))
	marked.SetAnnotations(annotations)
	return w.send(watch.Bookmark, w.form.shape(w.resource, marked))
}

func (w *watcher) send(kind watch.EventType, body any) error {
	return w.encoder.Encode(struct {
		Type   watch.EventType `json:"type"`
		Object any             `json:"object"`
	}{kind, body})
}

func (w *watcher) flush() {
	if flusher, can := w.writer.(http.Flusher); can {
		flusher.Flush()
	}
}
