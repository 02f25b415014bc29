package simshard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// peerTimeout is long beside what a request on loopback takes.
const peerTimeout = 5 * time.Second

// peers reaches the API of every shard, this one's own included: the controllers of a
// kcp shard are clients of it like any other, and are fenced like any other.
type peers struct {
	ownURL string
	config Config
	client *http.Client
}

func newPeers(ownURL string, config Config) *peers {
	transport := &http.Transport{TLSClientConfig: tlsForPeers(config), ForceAttemptHTTP2: true}
	return &peers{ownURL: ownURL, config: config, client: &http.Client{Transport: transport, Timeout: peerTimeout}}
}

// url is that of a shard's API server; empty when there is no such shard.
func (p *peers) url(shard string) string {
	if shard == p.config.Name {
		return p.ownURL
	}
	for _, peer := range p.config.Peers() {
		if peer.Name == shard {
			return peer.URL
		}
	}
	return ""
}

// find asks every shard for an object, its own first, and also gives the URL of the one that has it.
func (p *peers) find(ctx context.Context, at target) (*unstructured.Unstructured, string, error) {
	urls := []string{p.ownURL}
	for _, peer := range p.config.Peers() {
		urls = append(urls, peer.URL)
	}
	var errs []error
	for _, url := range urls {
		found, err := p.get(ctx, url, at)
		if err == nil {
			return found, url, nil
		}
		errs = append(errs, err)
	}
	return nil, "", errors.Join(errs...)
}

func (p *peers) get(ctx context.Context, url string, at target) (*unstructured.Unstructured, error) {
	return p.do(ctx, http.MethodGet, url, at, "", nil)
}

func (p *peers) patch(ctx context.Context, url string, at target, patch any) error {
	_, err := p.do(ctx, http.MethodPatch, url, at, string(types.MergePatchType), patch)
	return err
}

func (p *peers) create(ctx context.Context, url string, in target, created *unstructured.Unstructured) error {
	_, err := p.do(ctx, http.MethodPost, url, in, "application/json", created)
	return err
}

func (p *peers) remove(ctx context.Context, url string, at target) error {
	_, err := p.do(ctx, http.MethodDelete, url, at, "", nil)
	return err
}

func (p *peers) do(ctx context.Context, method, url string, at target, contentType string, body any) (*unstructured.Unstructured, error) {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, url+at.url(), bytes.NewReader(sent))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+p.config.AdminToken)
	request.Header.Set("Content-Type", contentType)
	response, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, at.resource, err)
	}
	received, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, at.resource, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return nil, statusError(response.StatusCode, received)
	}
	return decodeJSON(received)
}

func statusError(code int, body []byte) error {
	status := metav1.Status{Code: int32(code)} //nolint:gosec // an HTTP status code
	if err := json.Unmarshal(body, &status); err != nil {
		status.Message = string(body)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// url is the path that parseTarget reads back.
func (t target) url() string {
	parts := []string{"", "clusters", t.cluster, "apis", t.group, t.version}
	if t.group == "" {
		parts = []string{"", "clusters", t.cluster, "api", t.version}
	}
	if t.namespace != "" {
		parts = append(parts, "namespaces", t.namespace)
	}
	parts = append(parts, t.resource)
	if t.name != "" {
		parts = append(parts, t.name)
	}
	return strings.Join(parts, "/")
}
