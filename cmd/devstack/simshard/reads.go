package simshard

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

func (a *apiServer) get(writer http.ResponseWriter, request *http.Request, r resource, t target) error {
	if wanted, err := parseRevision(request.URL.Query().Get("resourceVersion")); err != nil {
		return err
	} else if err := a.store.awaitRevision(request.Context(), wanted); err != nil {
		return err
	}
	found, err := a.store.get(request.Context(), r.at(t))
	if err != nil {
		return err
	}
	return writeJSON(writer, http.StatusOK, acceptedForm(request).shape(r, found))
}

func (a *apiServer) list(writer http.ResponseWriter, request *http.Request, r resource, t target) error {
	matches, err := parseSelector(request.URL.Query())
	if err != nil {
		return err
	}
	asked, err := a.pageRequest(request.Context(), r, t, request.URL.Query())
	if err != nil {
		return err
	}
	listed, err := a.store.list(request.Context(), asked)
	if err != nil {
		return err
	}
	items := make([]object, 0, len(listed.items))
	for _, item := range listed.items {
		if matches(item) {
			items = append(items, item)
		}
	}
	list := metav1.ListMeta{ResourceVersion: strconv.FormatInt(listed.revision, 10)}
	if listed.next != "" {
		list.Continue = encodeContinue(listed.revision, listed.next)
		list.RemainingItemCount = &listed.remaining
	}
	return writeJSON(writer, http.StatusOK, acceptedForm(request).shapeList(r, items, list))
}

// pageRequest turns a list's parameters into what to read. A revision that the store has
// not reached is waited for, unless an exact one was asked for.
func (a *apiServer) pageRequest(ctx context.Context, r resource, t target, query url.Values) (pageRequest, error) {
	asked := pageRequest{family: r.family, cluster: t.cluster, namespace: t.namespace}
	limit, err := parseRevision(query.Get("limit"))
	if err != nil {
		return asked, err
	}
	asked.limit = limit
	if token := query.Get("continue"); token != "" {
		asked.revision, asked.from, err = decodeContinue(token)
		return asked, err
	}
	wanted, err := parseRevision(query.Get("resourceVersion"))
	if err != nil {
		return asked, err
	}
	if metav1.ResourceVersionMatch(query.Get("resourceVersionMatch")) == metav1.ResourceVersionMatchExact {
		asked.revision = wanted
		return asked, nil
	}
	return asked, a.store.awaitRevision(ctx, wanted)
}

// parseRevision reads a resourceVersion or another whole number; empty is 0.
func parseRevision(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version or limit: %q", text))
	}
	return number, nil
}

func encodeContinue(revision int64, next string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(revision, 10) + " " + next))
}

func decodeContinue(token string) (revision int64, from string, err error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, "", apierrors.NewBadRequest("continue key is not valid")
	}
	number, from, _ := strings.Cut(string(text), " ")
	revision, err = parseRevision(number)
	return revision, from, err
}

// parseSelector gives a test of objects against labelSelector and fieldSelector.
func parseSelector(query url.Values) (func(object) bool, error) {
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return func(each object) bool {
		return byLabel.Matches(labels.Set(each.GetLabels())) && byField.Matches(fieldsOf(each))
	}, nil
}

// fieldsOf are the fields that can be selected by.
func fieldsOf(each object) fields.Set {
	known := fields.Set{"metadata.name": each.GetName(), "metadata.namespace": each.GetNamespace()}
	switch typed := each.(type) {
	case *corev1.Secret:
		known["type"] = string(typed.Type)
	case *corev1.Namespace:
		known["status.phase"] = string(typed.Status.Phase)
	case *corev1.Event:
		known["involvedObject.kind"] = typed.InvolvedObject.Kind
		known["involvedObject.name"] = typed.InvolvedObject.Name
		known["involvedObject.uid"] = string(typed.InvolvedObject.UID)
	}
	return known
}
