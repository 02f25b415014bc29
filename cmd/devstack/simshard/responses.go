package simshard

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// form is how a client wants objects to look.
type form int

const (
	whole form = iota
	partialMetadata
	table
)

// acceptedForm is the first of the Accept header that can be served; everything is JSON.
func acceptedForm(request *http.Request) form {
	for clause := range strings.SplitSeq(request.Header.Get("Accept"), ",") {
		switch {
		case strings.Contains(clause, "as=PartialObjectMetadata"):
			return partialMetadata
		case strings.Contains(clause, "as=Table"):
			return table
		case strings.TrimSpace(clause) == "application/json":
			return whole
		}
	}
	return whole
}

// shape gives one object in the wanted form.
func (f form) shape(r resource, each object) any {
	switch f {
	case partialMetadata:
		return toPartial(each)
	case table:
		return toTable(r, []object{each}, metav1.ListMeta{ResourceVersion: each.GetResourceVersion()})
	default:
		return asVersion(r, each)
	}
}

// shapeList gives a list in the wanted form.
func (f form) shapeList(r resource, items []object, list metav1.ListMeta) any {
	switch f {
	case partialMetadata:
		partial := metav1.PartialObjectMetadataList{ListMeta: list, Items: make([]metav1.PartialObjectMetadata, 0, len(items))}
		partial.APIVersion, partial.Kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
		for _, item := range items {
			partial.Items = append(partial.Items, *toPartial(item))
		}
		return partial
	case table:
		return toTable(r, items, list)
	default:
		shaped := make([]any, 0, len(items))
		for _, item := range items {
			shaped = append(shaped, asVersion(r, item))
		}
		return map[string]any{"apiVersion": r.groupVersion(), "kind": r.listKind, "metadata": list, "items": shaped}
	}
}

// asVersion names the version that was asked for. kcp would convert; here every version of a custom type reads alike.
func asVersion(r resource, each object) object {
	if !r.builtIn() {
		each.GetObjectKind().SetGroupVersionKind(r.kindOf())
	}
	return each
}

func toPartial(from object) *metav1.PartialObjectMetadata {
	partial := meta.AsPartialObjectMetadata(from)
	partial.APIVersion, partial.Kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	return partial
}

func toTable(r resource, items []object, list metav1.ListMeta) metav1.Table {
	shaped := metav1.Table{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"},
		ListMeta: list,
		ColumnDefinitions: []metav1.TableColumnDefinition{
			{Name: "Name", Type: "string", Format: "name", Description: "Name of the " + r.kind},
			{Name: "Age", Type: "string", Description: "Time since it was created"},
		},
		Rows: make([]metav1.TableRow, 0, len(items)),
	}
	for _, item := range items {
		age := duration.HumanDuration(time.Since(item.GetCreationTimestamp().Time))
		row := metav1.TableRow{Cells: []any{item.GetName(), age}, Object: runtime.RawExtension{Object: toPartial(item)}}
		shaped.Rows = append(shaped.Rows, row)
	}
	return shaped
}

func writeJSON(writer http.ResponseWriter, code int, body any) error {
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(code)
	return json.NewEncoder(writer).Encode(body)
}

// statusOf is the Status that an error is told as.
func statusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	return status
}

// writeCancelled answers a request whose cluster's context was cancelled: as on a real
// kcp the timeout filter does it, which leaves out kind and apiVersion.
func writeCancelled(writer http.ResponseWriter) error {
	return writeJSON(writer, http.StatusGatewayTimeout,
		apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0).Status())
}

func writeError(writer http.ResponseWriter, err error) error {
	status := statusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		writer.Header().Set("Retry-After", "1")
	}
	return writeJSON(writer, int(status.Code), status)
}
