package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities/transfer"
)

// What kcp's dump gives where a request names no limits.
const (
	dumpLimit    = 1000
	dumpMaxBytes = 2 << 20
)

// native does what kcp's own migration does, written anew from what it was seen to do: the origin answers with pages of base64 in
// JSON, for each of which it ranges over the whole shard with values; the destination puts one entry after the other; the
// clean-up looks at every key of the shard to find the tenant's prefixes and deletes these. What kcp's controllers wait between
// two pages is left out, to its advantage.
type native struct {
	assigned assignment
	etcd     *clientv3.Client
	client   *http.Client
	server   *http.Server
}

func newBaseline(ctx context.Context, assigned assignment) (*native, error) {
	security, err := loadTLS(assigned.Files)
	if err != nil {
		return nil, err
	}
	etcd, err := dial(ctx, assigned.etcd())
	if err != nil {
		return nil, err
	}
	n := &native{assigned: assigned, etcd: etcd}
	n.client = &http.Client{Transport: &http.Transport{TLSClientConfig: security, ForceAttemptHTTP2: true}}
	n.server = &http.Server{Handler: http.HandlerFunc(n.dump), TLSConfig: security, ReadHeaderTimeout: time.Minute}
	return n, nil
}

func loadTLS(files transfer.Config) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(files.CertificateFile, files.KeyFile)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(files.CAFile)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{certificate},
		RootCAs: authorities, ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert,
		ServerName: transfer.PeerName, NextProtos: []string{"h2"},
	}, nil
}

func (n *native) do(ctx context.Context, order order) (answer, error) {
	switch order.Task {
	case serve:
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return answer{}, err
		}
		go func() { _ = n.server.ServeTLS(listener, "", "") }() // ends with close
		return answer{Address: listener.Addr().String()}, nil
	case copying:
		return n.copy(ctx, order.Address)
	case cleanup:
		return n.cleanup(ctx)
	default:
		return cannot(order.Task)
	}
}

func (n *native) close() error { return errors.Join(n.server.Close(), n.etcd.Close()) }

// logicalClusterDump has the fields that matter of kcp's object of that name.
type logicalClusterDump struct {
	Spec struct {
		Continue string `json:"continue,omitempty"`
	} `json:"spec"`
	Status dumpPage `json:"status"`
}

// dumpPage is one page. Encoded as JSON, a value is base64.
type dumpPage struct {
	Entries  []dumpEntry `json:"entries,omitempty"`
	Continue string      `json:"continue,omitempty"`

	size int // bytes of values
}

// add gives false where the page is full: then it ends before this entry.
func (p *dumpPage) add(entry dumpEntry) bool {
	if len(p.Entries) == dumpLimit || len(p.Entries) > 0 && p.size+len(entry.Value) > dumpMaxBytes {
		p.Continue = entry.Key
		return false
	}
	p.Entries, p.size = append(p.Entries, entry), p.size+len(entry.Value)
	return true
}

type dumpEntry struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// dump serves one page.
func (n *native) dump(writer http.ResponseWriter, request *http.Request) {
	var dump logicalClusterDump
	err := json.NewDecoder(request.Body).Decode(&dump)
	if err == nil {
		dump.Status, err = n.page(request.Context(), dump.Spec.Continue)
	}
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(writer).Encode(dump) // the client sees a page that ends early
}

// page ranges over the whole shard until it has a page of the tenant's.
func (n *native) page(ctx context.Context, from string) (dumpPage, error) {
	var page dumpPage
	for kv, err := range n.scan(ctx, layout.Prefix()+from) {
		if err != nil {
			return dumpPage{}, err
		}
		if parsed, err := layout.Parse(string(kv.Key)); err != nil || parsed.LogicalCluster != tenant {
			continue
		}
		if !page.add(dumpEntry{Key: strings.TrimPrefix(string(kv.Key), layout.Prefix()), Value: kv.Value}) {
			break
		}
	}
	return page, nil
}

func (n *native) copy(ctx context.Context, address string) (answer, error) {
	var done answer
	for from := ""; ; done.Pages++ {
		page, err := n.request(ctx, address, from)
		if err != nil {
			return answer{}, err
		}
		for _, entry := range page.Entries {
			if _, err := n.etcd.Put(ctx, layout.Prefix()+entry.Key, string(entry.Value)); err != nil {
				return answer{}, err
			}
			done.Entries++
		}
		if page.Continue == "" {
			done.Pages++
			return done, nil
		}
		from = page.Continue
	}
}

func (n *native) request(ctx context.Context, address, from string) (dumpPage, error) {
	var dump logicalClusterDump
	dump.Spec.Continue = from
	body, err := json.Marshal(dump)
	if err != nil {
		return dumpPage{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address, bytes.NewReader(body))
	if err != nil {
		return dumpPage{}, err
	}
	response, err := n.client.Do(request)
	if err != nil {
		return dumpPage{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		problem, _ := io.ReadAll(response.Body) // the status says enough
		return dumpPage{}, fmt.Errorf("dump: %s: %s", response.Status, problem)
	}
	err = json.NewDecoder(response.Body).Decode(&dump)
	return dump.Status, err
}

// scan gives every key of the shard from one on, in pages.
func (n *native) scan(ctx context.Context, from string, options ...clientv3.OpOption) iter.Seq2[*mvccpb.KeyValue, error] {
	options = append(options, clientv3.WithRange(clientv3.GetPrefixRangeEnd(layout.Prefix())), clientv3.WithLimit(dumpLimit))
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		for {
			page, err := n.etcd.Get(ctx, from, options...)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, kv := range page.Kvs {
				if !yield(kv, nil) {
					return
				}
			}
			if !page.More {
				return
			}
			from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
		}
	}
}

func (n *native) cleanup(ctx context.Context) (answer, error) {
	prefixes := map[string]bool{}
	for kv, err := range n.scan(ctx, layout.Prefix(), clientv3.WithKeysOnly()) {
		if err != nil {
			return answer{}, err
		}
		if parsed, err := layout.Parse(string(kv.Key)); err == nil && parsed.LogicalCluster == tenant {
			prefixes[layout.FamilyPrefix(parsed.Family, tenant)] = true
		}
	}
	var done answer
	for prefix := range prefixes {
		deleted, err := n.etcd.Delete(ctx, prefix, clientv3.WithPrefix())
		if err != nil {
			return answer{}, err
		}
		done.Entries += deleted.Deleted
	}
	return done, nil
}
