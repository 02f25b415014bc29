package simshard

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// open are the paths that need no credentials.
var open = map[string]bool{"/readyz": true, "/livez": true, "/healthz": true, "/version": true}

// authenticate lets in the administrator alone.
func (a *apiServer) authenticate(request *http.Request, t target) error {
	token := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
	if open[t.path] || subtle.ConstantTimeCompare([]byte(token), []byte(a.config.AdminToken)) == 1 {
		return nil
	}
	return apierrors.NewUnauthorized("Unauthorized")
}

// reviews answer the questions of who may do what: here, the administrator everything.
var reviews = map[schema.GroupResource]func(http.ResponseWriter, *http.Request) error{
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}: allow,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:     allow,
}

func allow(writer http.ResponseWriter, request *http.Request) error {
	body, err := readBody(request)
	if err != nil {
		return err
	}
	review, err := decodeReview(body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	review["status"] = map[string]any{"allowed": true, "reason": "administrator"}
	return writeJSON(writer, http.StatusCreated, review)
}

func decodeReview(body []byte) (map[string]any, error) {
	if len(body) == 0 {
		return nil, errors.New("review is empty")
	}
	if body[0] != '{' {
		read, err := decodeBody(body)
		if err != nil {
			return nil, err
		}
		return read.Object, nil
	}
	var review map[string]any
	return review, json.Unmarshal(body, &review)
}
