package kcp

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// inactiveMessage is in every 403 of kcp's fence
// (kcp pkg/server/filters/inactivelogicalcluster.go), and in no 403 for want of rights.
const inactiveMessage = "marked inactive"

// explain says what was asked of whom, and marks the errors that activities decide by.
func (c connection) explain(verb, path string, err error) error {
	switch {
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("%w: %w", activities.ErrNotFound, err)
	case isInactive(err):
		// The fence stands: no matter of rights.
	case isUnrouted(err):
		err = fmt.Errorf("front-proxy does not know the logical cluster: %w", err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		err = fmt.Errorf("%w: %w", activities.ErrForbidden, err)
	}
	return fmt.Errorf("%s %s at %s: %w", strings.ToLower(verb), path, c.server, err)
}

// isInactive reports whether the fence refused the request.
func isInactive(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), inactiveMessage)
}

// isUnrouted reports whether a front-proxy knows no such logical cluster, or not yet: it may have just started.
// It looks the logical cluster up before it asks who the user is (kcp pkg/proxy/lookup/lookup.go).
func isUnrouted(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), `User "" `)
}

// isRefusal reports whether the server answered and another would not answer better.
func isRefusal(err error) bool {
	code := statusCode(err)
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusTooManyRequests && !isUnrouted(err)
}

// statusCode is the HTTP status the server answered with; 0 when it did not answer.
func statusCode(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// isAborted reports whether the server broke off its answer, as kcp does, instead of 504, where the context of the logical
// cluster was cancelled and the answer had begun (k8s.io/apiserver/pkg/server/filters/timeout.go).
func isAborted(err error) bool {
	var reset http2.StreamError
	return errors.As(err, &reset)
}

// answer tells a probe's outcome in a few words: status code and reason, or why there was no answer.
func answer(err error) string {
	var (
		status apierrors.APIStatus
		failed *url.Error
	)
	switch {
	case err == nil:
		return "200"
	case isInactive(err):
		return "403 inactive"
	case isUnrouted(err):
		return "403 unknown to the front-proxy"
	case errors.As(err, &status):
		return fmt.Sprintf("%d %s", status.Status().Code, status.Status().Reason)
	case errors.As(err, &failed): // the URL is told beside it
		return failed.Err.Error()
	default:
		return err.Error()
	}
}
