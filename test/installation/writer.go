package installation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	writeEvery = 20 * time.Millisecond
	// writerLabel marks the Writer's ConfigMaps.
	writerLabel = "kcp-migrate.io/written-by-test"
	// livingWrites is how many writes a ConfigMap outlives before every other one is deleted.
	livingWrites = 100
)

// Writer is a tenant's client that creates, updates and deletes ConfigMaps all the time. Every write is
// tried until it is acknowledged, so that what must be there is always known.
type Writer struct {
	configMaps corev1client.ConfigMapInterface
	cancel     context.CancelFunc
	done       chan struct{}

	mutex sync.Mutex
	// acknowledged is the last acknowledged value by name; "" is an acknowledged deletion.
	acknowledged map[string]string
	// attempted names deletions that were sent, acknowledged or not.
	attempted map[string]bool
	// lost names those that were not there when they were to be updated or deleted.
	lost []string
	// pending is the write at work; whether it lands is not known once the Writer has been stopped.
	pending string
	// unclear is whether a try of the pending write may have landed without an answer; a refusal is clear.
	unclear bool
}

// StartWriter starts one in a workspace.
func (i *Installation) StartWriter(ctx context.Context, workspace string) (*Writer, error) {
	config, err := i.TenantConfig(workspace)
	if err != nil {
		return nil, err
	}
	config.Timeout = requestTimeout
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make writer's client: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	writer := &Writer{
		configMaps: tenant.CoreV1().ConfigMaps(tenantNamespace), cancel: cancel, done: make(chan struct{}),
		acknowledged: map[string]string{}, attempted: map[string]bool{},
	}
	go writer.run(ctx)
	return writer, nil
}

// Stop ends the writing.
func (w *Writer) Stop() {
	w.cancel()
	<-w.done
}

// Acknowledged counts the names whose last write was acknowledged.
func (w *Writer) Acknowledged() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.acknowledged)
}

// Deleted are the names whose deletion the Writer asked for.
func (w *Writer) Deleted() map[string]bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return maps.Clone(w.attempted)
}

// Verify compares what the tenant has now with what was acknowledged, and names every loss and every
// deleted object that came back. Call it after Stop.
func (w *Writer) Verify(ctx context.Context) ([]string, error) {
	list, err := w.configMaps.List(ctx, metav1.ListOptions{LabelSelector: writerLabel})
	if err != nil {
		return nil, fmt.Errorf("list the writer's ConfigMaps: %w", err)
	}
	present := map[string]string{}
	for _, configMap := range list.Items {
		present[configMap.Name] = configMap.Data["value"]
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var problems []string
	for _, name := range w.lost {
		problems = append(problems, "acknowledged ConfigMap was lost: "+name)
	}
	for name, value := range w.acknowledged {
		now, found := present[name]
		switch {
		case name == w.pending:
		case value == "" && found:
			problems = append(problems, "deleted ConfigMap came back: "+name)
		case value != "" && !found:
			problems = append(problems, "acknowledged ConfigMap is lost: "+name)
		case value != now:
			problems = append(problems, "acknowledged update is lost: "+name)
		}
	}
	return problems, nil
}

// run creates one ConfigMap a round, updates the one of the round before, and deletes every other old one.
func (w *Writer) run(ctx context.Context) {
	defer close(w.done)
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	name := func(round int) string { return fmt.Sprintf("written-%s-%d", run, round) }
	ticker := time.NewTicker(writeEvery)
	defer ticker.Stop()
	for round := 0; ctx.Err() == nil; round++ {
		w.acknowledge(ctx, name(round), "created", w.create)
		if round > 0 {
			w.acknowledge(ctx, name(round-1), "updated", w.update)
		}
		if old := round - livingWrites; old > 0 && old%2 == 0 {
			w.acknowledge(ctx, name(old), "", w.delete)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// acknowledge tries a write until it is acknowledged and records it. Once stopped it must begin no other:
// the one that was cut off stays the pending one.
func (w *Writer) acknowledge(ctx context.Context, name, value string, write func(ctx context.Context, name, value string) error) {
	if ctx.Err() != nil {
		return
	}
	w.mutex.Lock()
	w.pending, w.unclear = name, false
	if value == "" {
		w.attempted[name] = true
	}
	w.mutex.Unlock()
	for {
		err := write(ctx, name, value)
		if err == nil {
			break
		}
		if errors.Is(err, errNotThere) {
			w.mutex.Lock()
			defer w.mutex.Unlock()
			w.pending = ""
			return
		}
		w.unclear = w.unclear || !apierrors.IsForbidden(err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryInterval):
		}
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.acknowledged[name], w.pending = value, ""
}

// create succeeds too where an earlier try landed without an answer.
func (w *Writer) create(ctx context.Context, name, value string) error {
	_, err := w.configMaps.Create(ctx, writtenConfigMap(name, value), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (w *Writer) update(ctx context.Context, name, value string) error {
	_, err := w.configMaps.Update(ctx, writtenConfigMap(name, value), metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		w.lose(name)
		return errNotThere
	}
	return err
}

// errNotThere is of an update whose object is not there: nothing was written.
var errNotThere = errors.New("object is not there")

func (w *Writer) lose(name string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.lost = append(w.lost, name)
}

func (w *Writer) delete(ctx context.Context, name, _ string) error {
	err := w.configMaps.Delete(ctx, name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	if !w.unclear {
		w.lose(name)
	}
	return nil
}

func writtenConfigMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{writerLabel: "true"}},
		Data:       map[string]string{"value": value},
	}
}
