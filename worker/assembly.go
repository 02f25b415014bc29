package worker

import (
	"go.temporal.io/sdk/interceptor"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// Option changes how a worker is put together. kcp-migrate itself uses none: they are for programs that put the worker
// to the proof.
type Option func(*assembly)

// WithInterceptors puts interceptors around every workflow and activity.
func WithInterceptors(interceptors ...interceptor.WorkerInterceptor) Option {
	return func(a *assembly) { a.interceptors = append(a.interceptors, interceptors...) }
}

// WithStore puts something between the worker and its shard's etcd.
func WithStore(wrap func(activities.Store) activities.Store) Option {
	return func(a *assembly) { a.store = wrap(a.store) }
}

// assembly is what a worker is put together from: its systems, and what the options made of them.
type assembly struct {
	*systems
	store        activities.Store
	interceptors []interceptor.WorkerInterceptor
}

func assemble(systems *systems, options []Option) *assembly {
	assembled := &assembly{systems: systems, store: systems.store}
	for _, option := range options {
		option(assembled)
	}
	return assembled
}
