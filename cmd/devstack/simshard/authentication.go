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

// RemoteUserHeader says that a front door has asked for somebody, who is then no member of system:masters.
const RemoteUserHeader = "X-Remote-User"

// authenticate lets in the administrator alone. Through a front door, not even he gets into a logical cluster that the shard has
// no LogicalCluster of, or one that is unavailable (kcp: pkg/authorization/workspace_content_authorizer.go).
func (a *apiServer) authenticate(request *http.Request, t target) error {
	token := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
	switch {
	case open[t.path]:
		return nil
	case subtle.ConstantTimeCompare([]byte(token), []byte(a.config.AdminToken)) != 1:
		return apierrors.NewUnauthorized("Unauthorized")
	case request.Header.Get(RemoteUserHeader) != "" && isTenant(t.cluster) && a.clusters.closed(t):
		return apierrors.NewForbidden(t.groupResource(), t.name, errors.New("access denied"))
	}
	return nil
}

func isTenant(cluster string) bool {
	return cluster != "" && cluster != wildcard && !strings.HasPrefix(cluster, "system:")
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
