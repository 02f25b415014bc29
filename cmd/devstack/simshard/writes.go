package simshard

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// generatedSuffixLength is how many random letters follow a generateName.
const generatedSuffixLength = 5

func readBody(request *http.Request) ([]byte, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return body, nil
}

func (a *apiServer) create(writer http.ResponseWriter, request *http.Request, r resource, t target) error {
	body, err := readBody(request)
	if err != nil {
		return err
	}
	created, err := decodeBody(body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := a.prepare(request, r, t, created); err != nil {
		return err
	}
	t.name = created.GetName()
	stored, err := a.store.create(request.Context(), r.at(t), created)
	if err != nil {
		return err
	}
	return writeJSON(writer, http.StatusCreated, acceptedForm(request).shape(r, stored))
}

// prepare does what admission and the create strategies of a real API server do.
func (a *apiServer) prepare(request *http.Request, r resource, t target, created *unstructured.Unstructured) error {
	created.SetGroupVersionKind(r.kindOf())
	if created.GetName() == "" && created.GetGenerateName() != "" {
		created.SetName(created.GetGenerateName() + rand.String(generatedSuffixLength))
	}
	if created.GetName() == "" {
		return apierrors.NewBadRequest("name or generateName is required")
	}
	if r.namespaced {
		if err := a.admitToNamespace(request, t); err != nil {
			return err
		}
	}
	created.SetNamespace(t.namespace)
	created.SetUID(uuid.NewUUID())
	created.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	created.SetGeneration(1)
	if !r.builtIn() {
		created.SetAnnotations(withAnnotation(created.GetAnnotations(), clusterAnnotation, t.cluster))
	}
	return a.strategy(r, created)
}

// strategy fills in what a kind cannot be without.
func (a *apiServer) strategy(r resource, created *unstructured.Unstructured) error {
	switch {
	case r.family == namespaceFamily:
		created.SetLabels(withAnnotation(created.GetLabels(), "kubernetes.io/metadata.name", created.GetName()))
		return errors.Join(
			unstructured.SetNestedStringSlice(created.Object, []string{"kubernetes"}, "spec", "finalizers"),
			unstructured.SetNestedField(created.Object, "Active", "status", "phase"))
	case r.resource == "workspaces" && r.apiGroup == workspaceGroup:
		created.SetFinalizers([]string{workspaceFinalizer})
		return unstructured.SetNestedField(created.Object, "Scheduling", "status", "phase")
	case r.family == logicalClusterFamily:
		created.SetFinalizers([]string{logicalClusterFinalizer})
	case r.family == bindingFamily:
		created.SetFinalizers([]string{bindingFinalizer})
	case r.family == crdFamily:
		return establish(created)
	}
	return nil
}

// establish accepts a CRD at once; its names are not checked against others'.
func establish(crd *unstructured.Unstructured) error {
	names, _, err := unstructured.NestedMap(crd.Object, "spec", "names")
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if names["listKind"] == nil {
		names["listKind"] = fmt.Sprint(names["kind"]) + "List"
	}
	if names["singular"] == nil {
		names["singular"] = singularOf(fmt.Sprint(names["kind"]))
	}
	condition := func(kind string) any {
		return map[string]any{"type": kind, "status": "True", "reason": "Simulated", "message": "accepted at once",
			"lastTransitionTime": crd.GetCreationTimestamp().Format(time.RFC3339)}
	}
	crd.SetFinalizers([]string{crdFinalizer})
	return errors.Join(
		unstructured.SetNestedMap(crd.Object, names, "spec", "names"),
		unstructured.SetNestedMap(crd.Object, names, "status", "acceptedNames"),
		unstructured.SetNestedSlice(crd.Object, []any{condition("NamesAccepted"), condition("Established")}, "status", "conditions"))
}

// admitToNamespace refuses what belongs to a namespace that is absent or being deleted.
func (a *apiServer) admitToNamespace(request *http.Request, t target) error {
	if t.namespace == "" {
		return apierrors.NewBadRequest("an empty namespace may not be set during creation")
	}
	found, err := a.store.get(request.Context(), place{family: namespaceFamily, cluster: t.cluster, name: t.namespace})
	if err != nil {
		return err
	}
	if found.GetDeletionTimestamp() != nil {
		return apierrors.NewForbidden(t.groupResource(), t.name,
			fmt.Errorf("unable to create new content in namespace %s because it is being terminated", t.namespace))
	}
	return nil
}

func (a *apiServer) update(writer http.ResponseWriter, request *http.Request, r resource, t target) error {
	body, err := readBody(request)
	if err != nil {
		return err
	}
	sent, err := decodeBody(body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return a.edit(writer, request, r, t, func(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return sent.DeepCopy(), nil
	})
}

func (a *apiServer) patch(writer http.ResponseWriter, request *http.Request, r resource, t target) error {
	body, err := readBody(request)
	if err != nil {
		return err
	}
	kind := types.PatchType(request.Header.Get("Content-Type"))
	return a.edit(writer, request, r, t, func(current *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		before, err := current.MarshalJSON()
		if err != nil {
			return nil, err
		}
		after, err := applyPatch(kind, current.GroupVersionKind(), before, body)
		if err != nil {
			return nil, err
		}
		return decodeJSON(after)
	})
}

func applyPatch(kind types.PatchType, of schema.GroupVersionKind, before, patch []byte) ([]byte, error) {
	var after []byte
	var err error
	switch kind {
	case types.JSONPatchType:
		var decoded jsonpatch.Patch
		if decoded, err = jsonpatch.DecodePatch(patch); err == nil {
			after, err = decoded.Apply(before)
		}
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, patch)
	case types.StrategicMergePatchType:
		schema, unknown := builtInScheme.New(of)
		if unknown != nil {
			return nil, unsupportedPatch(kind)
		}
		after, err = strategicpatch.StrategicMergePatch(before, patch, schema)
	default:
		return nil, unsupportedPatch(kind)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return after, nil
}

func unsupportedPatch(kind types.PatchType) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format: %s", kind),
	}}
}

// edit replaces an object by what change makes of it, as far as the (sub)resource allows.
func (a *apiServer) edit(writer http.ResponseWriter, request *http.Request, r resource, t target, change func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) error {
	stored, err := a.store.change(request.Context(), r.at(t), func(current *unstructured.Unstructured) error {
		asVersion(r, current)
		sent, err := change(current)
		if err != nil {
			return err
		}
		if wanted := sent.GetResourceVersion(); wanted != "" && wanted != current.GetResourceVersion() {
			return apierrors.NewConflict(t.groupResource(), t.name, errStale)
		}
		if uid := sent.GetUID(); uid != "" && uid != current.GetUID() {
			return apierrors.NewConflict(t.groupResource(), t.name, fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", uid, current.GetUID()))
		}
		return merge(r, t.subresource, current, sent)
	})
	if err != nil {
		return err
	}
	return writeJSON(writer, http.StatusOK, acceptedForm(request).shape(r, stored))
}

// merge lets a subresource change its part alone, and the object everything but status and what the server owns.
func merge(r resource, subresource string, current, sent *unstructured.Unstructured) error {
	switch subresource {
	case "status":
		current.Object["status"] = sent.Object["status"]
		return nil
	case "finalize":
		current.Object["spec"] = sent.Object["spec"]
		return nil
	case "":
	default:
		return apierrors.NewNotFound(r.groupResource(), subresource)
	}
	before := current.DeepCopy()
	current.Object = sent.Object
	current.SetGroupVersionKind(r.kindOf())
	current.SetName(before.GetName())
	current.SetNamespace(before.GetNamespace())
	current.SetUID(before.GetUID())
	current.SetCreationTimestamp(before.GetCreationTimestamp())
	current.SetDeletionTimestamp(before.GetDeletionTimestamp())
	current.SetGeneration(before.GetGeneration())
	if r.hasStatus {
		delete(current.Object, "status")
		if status, has := before.Object["status"]; has {
			current.Object["status"] = status
		}
	}
	if !equality.Semantic.DeepEqual(before.Object["spec"], current.Object["spec"]) {
		current.SetGeneration(before.GetGeneration() + 1)
	}
	return nil
}

func (a *apiServer) remove(writer http.ResponseWriter, request *http.Request, r resource, t target) error {
	body, err := readBody(request)
	if err != nil {
		return err
	}
	options, err := decodeDeleteOptions(body)
	if err != nil {
		return err
	}
	left, err := a.store.remove(request.Context(), r.at(t), options.Preconditions)
	if err != nil {
		return err
	}
	if left.GetDeletionTimestamp() != nil {
		return writeJSON(writer, http.StatusOK, acceptedForm(request).shape(r, left))
	}
	return writeJSON(writer, http.StatusOK, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Group: t.group, Kind: t.resource, Name: t.name, UID: left.GetUID()},
	})
}

func (a *apiServer) removeAll(writer http.ResponseWriter, request *http.Request, r resource, t target) error {
	matches, err := parseSelector(request.URL.Query())
	if err != nil {
		return err
	}
	listed, err := a.store.list(request.Context(), pageRequest{family: r.family, cluster: t.cluster, namespace: t.namespace})
	if err != nil {
		return err
	}
	for _, item := range listed.items {
		if !matches(item) {
			continue
		}
		t.name, t.namespace = item.GetName(), item.GetNamespace()
		if _, err := a.store.remove(request.Context(), r.at(t), nil); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return writeJSON(writer, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess})
}

// decodeDeleteOptions reads the optional body of a DELETE, JSON or protobuf.
func decodeDeleteOptions(body []byte) (metav1.DeleteOptions, error) {
	var options metav1.DeleteOptions
	if len(body) == 0 {
		return options, nil
	}
	kind := schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}
	if _, _, err := codecs.UniversalDeserializer().Decode(body, &kind, &options); err != nil {
		return options, apierrors.NewBadRequest(err.Error())
	}
	return options, nil
}
