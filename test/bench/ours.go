package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
	"github.com/kcp-migrate/kcp-migrate/activities/transfer"
)

// longestActivity is beyond what any shape takes.
const longestActivity = time.Hour

// ours is the product's side: its activities as they are, on its store, with its transfer server or dialer, run as Temporal's
// worker would run them but without Temporal.
type ours struct {
	assigned   assignment
	store      *etcd.Store
	shard      *activities.Shard
	activities *testsuite.TestActivityEnvironment
	stop       context.CancelFunc
	served     chan error
}

func newOurs(ctx context.Context, assigned assignment) (*ours, error) {
	store, err := etcd.Open(ctx, etcd.Config{Endpoints: []string{assigned.etcd()}, PagesOnly: assigned.Contender == paged, Unbraked: !assigned.Braked})
	if err != nil {
		return nil, err
	}
	o := &ours{assigned: assigned, store: store, stop: func() {}}
	if err := o.prepare(ctx); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return o, nil
}

// prepare claims the shard's etcd, as a move does before it fences.
func (o *ours) prepare(ctx context.Context) error {
	dialer, err := transfer.NewDialer(o.assigned.Files)
	if err != nil {
		return err
	}
	o.shard = &activities.Shard{Name: string(o.assigned.Role), Store: o.store, Dialer: dialer}
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	o.activities = suite.NewTestActivityEnvironment()
	o.activities.SetTestTimeout(longestActivity)
	o.activities.RegisterActivity(o.shard)
	if err := o.warmUp(); err != nil {
		return err
	}
	_, err = o.store.Claim(ctx, guard, activities.ClaimInfo{RunID: token.Run()})
	return err
}

// warmUp has the environment, which stands in for Temporal's worker, make what it makes at its first activity.
func (o *ours) warmUp() error {
	nothing := func(context.Context) error { return nil }
	o.activities.RegisterActivity(nothing)
	_, err := o.activities.ExecuteActivity(nothing)
	return err
}

var guard = activities.Guard{LogicalCluster: tenant, Token: token}

func (o *ours) do(ctx context.Context, order order) (answer, error) {
	origin := activities.OriginRef{Address: order.Address, Guard: guard}
	switch order.Task {
	case serve:
		return o.serve(ctx)
	case copying:
		return o.copy(origin, order.Revision)
	case verify:
		return o.verify(origin)
	case cleanup:
		return o.cleanup(order.Revision)
	default:
		return cannot(order.Task)
	}
}

// serve tells the revision to copy too, which a move has from its fence.
func (o *ours) serve(ctx context.Context) (answer, error) {
	revision, err := o.store.Revision(ctx)
	if err != nil {
		return answer{}, err
	}
	server, err := transfer.NewServer(o.assigned.Files, activities.NewOrigin(o.store), o.store, http.NotFoundHandler())
	if err != nil {
		return answer{}, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return answer{}, err
	}
	ctx, o.stop = context.WithCancel(ctx)
	o.served = make(chan error, 1)
	go func() { o.served <- server.Serve(ctx, listener) }()
	return answer{Address: listener.Addr().String(), Revision: revision}, nil
}

func (o *ours) copy(origin activities.OriginRef, revision int64) (answer, error) {
	result, err := execute[activities.CopyResult](o, o.shard.CopyEntries, activities.CopyInput{Guard: guard, Origin: origin, Revision: revision})
	return answer{Entries: result.Entries}, err
}

func (o *ours) verify(origin activities.OriginRef) (answer, error) {
	result, err := execute[activities.VerifyResult](o, o.shard.VerifyEntries,
		activities.VerifyInput{Guard: guard, RaiseTo: token.Next(), Origin: origin})
	if err == nil && !result.Match {
		err = errors.New("the two sides differ")
	}
	return answer{Entries: result.Entries, Revision: result.OriginRevision}, err
}

func (o *ours) cleanup(verified int64) (answer, error) {
	result, err := execute[activities.DeleteResult](o, o.shard.DeleteOriginEntries, activities.DeleteInput{Guard: guard, Revision: verified})
	return answer{Entries: result.Deleted}, err
}

func execute[Result any](o *ours, activity, input any) (Result, error) {
	var result Result
	encoded, err := o.activities.ExecuteActivity(activity, input)
	if err != nil {
		return result, err
	}
	return result, encoded.Get(&result)
}

func (o *ours) close() error {
	o.stop()
	var err error
	if o.served != nil {
		err = <-o.served
	}
	if err != nil {
		err = fmt.Errorf("serve transfers: %w", err)
	}
	return errors.Join(err, o.store.Close())
}
