// Package dump serves kcp's LogicalClusterDump, the request by which a destination shard of kcp's native migration asks
// the origin shard for a logical cluster, out of a worker's activities.Source. It is create-only: nothing is stored.
//
//	POST [/services/migratingworkspaces]/clusters/<name>/apis/migration.kcp.io/v1alpha1/logicalclusterdumps
//
// It differs from kcp's own in this: every page is of one revision, which the continue token carries; only the logical
// cluster's own keys are read; the LogicalCluster, which is fenced, comes first; values are as the API server sees them,
// not as they are encrypted at rest. A client that accepts application/json;stream=watch is sent all pages in one answer, a line
// each. It reads them as it reads pages, and asks with the last line's token where the answer breaks off: only a page
// without a token is the last.
package dump

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	migrationv1alpha1 "github.com/kcp-dev/sdk/apis/migration/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// Group is who may ask, as in kcp: an organisation of the client's certificate.
const Group = "system:kcp:external-logical-cluster-admin"

const (
	path       = "/clusters/{cluster}/apis/migration.kcp.io/v1alpha1/logicalclusterdumps"
	kcpsPrefix = "/services/migratingworkspaces"

	jsonType = "application/json"
	// streamType is Kubernetes' own for JSON objects one after the other.
	streamType = "application/json;stream=watch"

	maxRequestBytes = 1 << 20
	// requestLimit ends a request that does not arrive.
	requestLimit = 10 * time.Second
	// stallLimit ends an answer whose reader takes no page for so long.
	stallLimit = 2 * time.Minute
)

// Source is what a dump needs of an activities.Source.
type Source interface {
	// LogicalCluster is the origin's object while the fence of the guard's run stands, else ErrNotFenced.
	LogicalCluster(ctx context.Context, guard activities.Guard) (activities.Object, error)
	Read(ctx context.Context, guard activities.Guard, request activities.ReadRequest) activities.Batches
}

// Claims tells which move a logical cluster is claimed by.
type Claims interface {
	ReadClaim(ctx context.Context, logicalCluster string) (activities.Claim, error)
}

// Handler answers for one shard.
type Handler struct {
	shard  string
	source Source
	claims Claims
	paths  *http.ServeMux
}

// NewHandler serves the logical clusters that move away from a shard.
func NewHandler(shard string, source Source, claims Claims) *Handler {
	handler := &Handler{shard: shard, source: source, claims: claims, paths: http.NewServeMux()}
	handler.paths.HandleFunc(path, handler.serve)
	handler.paths.HandleFunc(kcpsPrefix+path, handler.serve)
	return handler
}

// ServeHTTP answers a request that came over TLS from a peer whose certificate was verified.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.paths.ServeHTTP(w, r) }

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	answer := &answer{w: w, streams: wantsStream(r.Header)}
	err := h.admit(w, r)
	if err == nil {
		err = h.dump(w, r, answer)
	}
	switch {
	case err == nil:
	case answer.begun:
		// Whatever could be sent now would look like the end of the dump.
		panic(http.ErrAbortHandler)
	default:
		refuse(w, toStatus(r.PathValue("cluster"), err))
	}
}

// admit checks what does not depend on the logical cluster, in kcp's order.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return apierrors.NewMethodNotSupported(resource, r.Method)
	}
	if !slices.Contains(groups(r), Group) {
		return apierrors.NewForbidden(resource, "", fmt.Errorf("no organisation of the client's certificate is %s", Group))
	}
	return nil
}

var resource = migrationv1alpha1.Resource("logicalclusterdumps")

// groups are the organisations of the client's verified certificate, as kube-apiserver takes them.
func groups(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0].Subject.Organization
}

func (h *Handler) dump(w http.ResponseWriter, r *http.Request, answer *answer) error {
	logicalCluster := r.PathValue("cluster")
	guard, err := h.guard(r.Context(), logicalCluster)
	if err != nil {
		return err
	}
	object, err := h.source.LogicalCluster(r.Context(), guard)
	if err != nil {
		return err
	}
	if answer.dump, err = receive(w, r); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("decode LogicalClusterDump: %v", err))
	}
	reading := &reading{source: h.source, guard: guard, logicalCluster: object, from: position{revision: object.Revision}}
	spec := answer.dump.Spec
	reading.entries = bound(spec.Limit, defaultEntries, maxEntries)
	reading.bytes = bound(spec.MaxBytes, defaultBytes, maxBytes)
	if spec.Continue != "" {
		if reading.from, err = parseToken(logicalCluster, spec.Continue); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	return answer.send(reading.pages(r.Context()))
}

// receive gives what is asked for; an empty request asks for the first page.
func receive(w http.ResponseWriter, r *http.Request) (asked LogicalClusterDump, err error) {
	if r.ContentLength == 0 {
		return asked, nil
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(requestLimit)); err != nil {
		return asked, err
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequestBytes)).Decode(&asked); err != nil {
		return asked, err
	}
	return asked, control.SetReadDeadline(time.Time{})
}

// guard is of the move that takes the logical cluster away from this shard.
func (h *Handler) guard(ctx context.Context, logicalCluster string) (activities.Guard, error) {
	claim, err := h.claims.ReadClaim(ctx, logicalCluster)
	if err != nil {
		return activities.Guard{}, fmt.Errorf("read claim of logical cluster %q: %w", logicalCluster, err)
	}
	if claim.OriginShard != h.shard {
		return activities.Guard{}, fmt.Errorf("logical cluster %q moves away from shard %s: %w",
			logicalCluster, claim.OriginShard, activities.ErrNotFenced)
	}
	return activities.Guard{LogicalCluster: logicalCluster, Token: claim.Token}, nil
}

func wantsStream(header http.Header) bool {
	for accepted := range strings.SplitSeq(header.Get("Accept"), ",") {
		mediaType, parameters, err := mime.ParseMediaType(accepted)
		if err == nil && mediaType == jsonType && parameters["stream"] == "watch" {
			return true
		}
	}
	return false
}

// toStatus says in Kubernetes' words what went wrong.
func toStatus(logicalCluster string, err error) *apierrors.StatusError {
	var status *apierrors.StatusError
	switch {
	case errors.As(err, &status):
		return status
	case errors.Is(err, activities.ErrNotFound), errors.Is(err, activities.ErrNotFenced):
		return apierrors.NewNotFound(resource, logicalCluster)
	case errors.Is(err, activities.ErrCompacted):
		return apierrors.NewResourceExpired("the revision of the dump was compacted: begin again without spec.continue")
	default:
		return apierrors.NewInternalError(fmt.Errorf("dump logical cluster %s: %w", logicalCluster, err))
	}
}

// refuse can do nothing about a client that is gone.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}
