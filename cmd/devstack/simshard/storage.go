package simshard

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// eventTTLSeconds is how long an Event lives: an hour, and the minute by which the API server rounds up.
	eventTTLSeconds = 3660
	// freshnessTimeout is how long the API server waits for a revision it has not seen yet.
	freshnessTimeout = 3 * time.Second
	freshnessPoll    = 50 * time.Millisecond
)

// store reads and writes a shard's objects.
type store struct {
	client *clientv3.Client
	layout layout
}

// revision is the store's current one.
func (s *store) revision(ctx context.Context) (int64, error) {
	answer, err := s.client.Get(ctx, string(s.layout), clientv3.WithCountOnly(), clientv3.WithLimit(1))
	if err != nil {
		return 0, fmt.Errorf("read revision: %w", err)
	}
	return answer.Header.Revision, nil
}

// awaitRevision waits until the store's revision is at least the given one, as an API
// server does for resourceVersionMatch=NotOlderThan, and fails as it does: 504, ResourceVersionTooLarge.
func (s *store) awaitRevision(ctx context.Context, wanted int64) error {
	deadline := time.NewTimer(freshnessTimeout)
	defer deadline.Stop()
	tick := time.NewTicker(freshnessPoll)
	defer tick.Stop()
	for {
		current, err := s.revision(ctx)
		if err != nil || current >= wanted {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return tooLarge(wanted, current)
		case <-tick.C:
		}
	}
}

func tooLarge(wanted, current int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", wanted, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

// get reads one object.
func (s *store) get(ctx context.Context, at place) (object, error) {
	answer, err := s.client.Get(ctx, s.layout.key(at))
	if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", at.resource, at.name, err)
	}
	if len(answer.Kvs) == 0 {
		return nil, apierrors.NewNotFound(at.groupResource(), at.name)
	}
	return s.read(at, answer.Kvs[0].Value, answer.Kvs[0].ModRevision)
}

// read turns a stored value into the object a client sees.
func (s *store) read(at place, value []byte, revision int64) (object, error) {
	read, err := decode(at.family, value)
	if err != nil {
		return nil, err
	}
	read.SetResourceVersion(strconv.FormatInt(revision, 10))
	annotations := read.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[clusterAnnotation] = at.cluster
	read.SetAnnotations(annotations)
	return read, nil
}

// create stores a new object.
func (s *store) create(ctx context.Context, at place, created *unstructured.Unstructured) (object, error) {
	value, err := encode(at.family, created)
	if err != nil {
		return nil, err
	}
	options, err := s.lease(ctx, at)
	if err != nil {
		return nil, err
	}
	key := s.layout.key(at)
	answer, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, string(value), options...)).Commit()
	if err != nil {
		return nil, fmt.Errorf("create %s %s: %w", at.resource, at.name, err)
	}
	if !answer.Succeeded {
		return nil, apierrors.NewAlreadyExists(at.groupResource(), at.name)
	}
	return s.read(at, value, answer.Header.Revision)
}

// lease gives Events the time to live that they have on a real shard.
func (s *store) lease(ctx context.Context, at place) ([]clientv3.OpOption, error) {
	if at.resource != "events" || !at.builtIn() {
		return nil, nil
	}
	lease, err := s.client.Grant(ctx, eventTTLSeconds)
	if err != nil {
		return nil, fmt.Errorf("grant lease of event %s: %w", at.name, err)
	}
	return []clientv3.OpOption{clientv3.WithLease(lease.ID)}, nil
}

// change edits an object as it stands now, again if another was faster. edit gets a copy of its own;
// what it leaves without finalizers although it is being deleted is deleted. Nothing is written when nothing changed.
func (s *store) change(ctx context.Context, at place, edit func(*unstructured.Unstructured) error) (object, error) {
	for {
		current, err := s.get(ctx, at)
		if err != nil {
			return nil, err
		}
		edited, err := toUnstructured(current)
		if err != nil {
			return nil, err
		}
		before := edited.DeepCopy()
		if err := edit(edited); err != nil {
			return nil, err
		}
		revision := before.GetResourceVersion()
		edited.SetResourceVersion(revision)
		if equality.Semantic.DeepEqual(before.Object, edited.Object) {
			return current, nil
		}
		changed, err := s.replace(ctx, at, edited, revision)
		if !apierrors.IsConflict(err) {
			return changed, err
		}
	}
}

// replace writes an object over the one of the given revision.
func (s *store) replace(ctx context.Context, at place, edited *unstructured.Unstructured, revision string) (object, error) {
	if edited.GetDeletionTimestamp() != nil && !hasFinalizers(edited) && !hasGrace(edited) {
		return edited, s.delete(ctx, at, revision)
	}
	value, err := encode(at.family, edited)
	if err != nil {
		return nil, err
	}
	answer, err := s.guarded(ctx, at, revision, clientv3.OpPut(s.layout.key(at), string(value), clientv3.WithIgnoreLease()))
	if err != nil {
		return nil, err
	}
	return s.read(at, value, answer)
}

// hasGrace is whether an edit leaves an object alone that is being deleted (k8s.io/apiserver, ShouldDeleteDuringUpdate).
func hasGrace(of *unstructured.Unstructured) bool {
	grace := of.GetDeletionGracePeriodSeconds()
	return grace != nil && *grace > 0
}

// delete removes the object of the given revision.
func (s *store) delete(ctx context.Context, at place, revision string) error {
	_, err := s.guarded(ctx, at, revision, clientv3.OpDelete(s.layout.key(at)))
	return err
}

func (s *store) guarded(ctx context.Context, at place, revision string, op clientv3.Op) (int64, error) {
	guard, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q", revision))
	}
	answer, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(s.layout.key(at)), "=", guard)).
		Then(op).Commit()
	if err != nil {
		return 0, fmt.Errorf("write %s %s: %w", at.resource, at.name, err)
	}
	if !answer.Succeeded {
		return 0, apierrors.NewConflict(at.groupResource(), at.name, errStale)
	}
	return answer.Header.Revision, nil
}

// hasFinalizers also looks at spec.finalizers, which only namespaces have.
func hasFinalizers(of *unstructured.Unstructured) bool {
	if len(of.GetFinalizers()) > 0 {
		return true
	}
	finalizers, _, _ := unstructured.NestedStringSlice(of.Object, "spec", "finalizers")
	return of.GetKind() == "Namespace" && of.GetAPIVersion() == "v1" && len(finalizers) > 0
}

// groupResource spells the family as the API does.
func (f family) groupResource() schema.GroupResource {
	if f.group == "core" && f.builtIn() {
		return schema.GroupResource{Resource: f.resource}
	}
	return schema.GroupResource{Group: f.group, Resource: f.resource}
}

// page is one answer to a list.
type page struct {
	items    []object
	revision int64
	// next is the key to go on from; empty when that was all.
	next      string
	remaining int64
}

// pageRequest says which keys to list.
type pageRequest struct {
	family             family
	cluster, namespace string
	// from is where an earlier page ended.
	from string
	// revision pins the read; 0 is now.
	revision int64
	limit    int64
}

func (s *store) list(ctx context.Context, request pageRequest) (page, error) {
	prefix := s.layout.rangePrefix(request.family, request.cluster, request.namespace)
	from := prefix
	if request.from != "" {
		if from = request.from; !strings.HasPrefix(from, prefix) {
			return page{}, apierrors.NewBadRequest("invalid continue token")
		}
	}
	answer, err := s.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)),
		clientv3.WithRev(request.revision), clientv3.WithLimit(request.limit))
	if err != nil {
		return page{}, listError(err, request)
	}
	listed := page{revision: answer.Header.Revision}
	if request.revision != 0 {
		listed.revision = request.revision
	}
	for _, kv := range answer.Kvs {
		at, isEntry := s.layout.parse(string(kv.Key))
		if !isEntry || at.family != request.family {
			continue
		}
		item, err := s.read(at, kv.Value, kv.ModRevision)
		if err != nil {
			return page{}, err
		}
		listed.items = append(listed.items, item)
	}
	if answer.More {
		listed.next = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
		listed.remaining = answer.Count - int64(len(answer.Kvs))
	}
	return listed, nil
}

func listError(err error, request pageRequest) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.")
	case errors.Is(err, rpctypes.ErrFutureRev):
		return tooLarge(request.revision, 0)
	default:
		return fmt.Errorf("list %s: %w", request.family.resource, err)
	}
}

// remove deletes an object, or marks it as being deleted while finalizers hold it; it gives what was there or is left.
func (s *store) remove(ctx context.Context, at place, preconditions *metav1.Preconditions) (object, error) {
	for {
		current, err := s.get(ctx, at)
		if err != nil {
			return nil, err
		}
		if err := check(preconditions, at, current); err != nil {
			return nil, err
		}
		held, err := toUnstructured(current)
		if err != nil {
			return nil, err
		}
		if !hasFinalizers(held) {
			err = s.delete(ctx, at, current.GetResourceVersion())
		} else {
			current, err = s.change(ctx, at, markDeleting)
		}
		if !apierrors.IsConflict(err) {
			return current, err
		}
	}
}

func markDeleting(held *unstructured.Unstructured) error {
	if held.GetDeletionTimestamp() != nil {
		return nil
	}
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	held.SetDeletionTimestamp(&now)
	held.SetDeletionGracePeriodSeconds(new(int64))
	if held.GetKind() == "Namespace" && held.GetAPIVersion() == "v1" {
		return unstructured.SetNestedField(held.Object, "Terminating", "status", "phase")
	}
	return nil
}

func check(preconditions *metav1.Preconditions, at place, current object) error {
	if preconditions == nil {
		return nil
	}
	if preconditions.UID != nil && *preconditions.UID != current.GetUID() {
		return apierrors.NewConflict(at.groupResource(), at.name, fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s)", *preconditions.UID, current.GetUID()))
	}
	if preconditions.ResourceVersion != nil && *preconditions.ResourceVersion != current.GetResourceVersion() {
		return apierrors.NewConflict(at.groupResource(), at.name, errStale)
	}
	return nil
}

func withAnnotation(annotations map[string]string, key, value string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	return annotations
}
