package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/etcdserver"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/installation"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/simshard"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/temporal"
)

// part is one piece of an installation that runs in a process of its own, so that it alone can be killed.
type part interface {
	addFlags(flags *pflag.FlagSet)
	// start returns once the part serves.
	start(ctx context.Context) (stop func() error, failed <-chan error, err error)
}

// parts are the subcommands.
var parts = map[string]func() part{
	"temporal":   func() part { return &temporalPart{} },
	"etcd":       func() part { return &etcdPart{} },
	"front-door": func() part { return &frontDoorPart{} },
	"api-server": func() part { return &apiServerPart{} },
}

// runPart runs one part until the context ends.
func runPart(ctx context.Context, name string, args []string, stderr io.Writer) int {
	chosen := parts[name]()
	set := pflag.NewFlagSet("devstack "+name, pflag.ContinueOnError)
	set.SetOutput(stderr)
	chosen.addFlags(set)
	switch err := set.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return exitDone
	case err != nil:
		fmt.Fprintln(stderr, "devstack:", err)
		return exitUsage
	}
	if err := servePart(ctx, chosen); err != nil {
		fmt.Fprintln(stderr, "devstack:", err)
		return exitError
	}
	return exitDone
}

func servePart(ctx context.Context, chosen part) (err error) {
	stop, failed, err := chosen.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// temporalPart is Temporal with its web UI.
type temporalPart struct{ config temporalserver.Config }

func (p *temporalPart) addFlags(flags *pflag.FlagSet) {
	flags.IntVar(&p.config.Port, "port", 0, "port of the frontend")
	flags.IntVar(&p.config.UIPort, "ui-port", 0, "port of the web UI")
	flags.StringVar(&p.config.File, "temporal-file", "", "keep its state in this file across restarts (default in memory)")
}

func (p *temporalPart) start(ctx context.Context) (func() error, <-chan error, error) {
	server, err := temporalserver.Start(ctx, p.config)
	if err != nil {
		return nil, nil, err
	}
	return server.Stop, server.Failed(), nil
}

// etcdPart is one member of a shard's etcd.
type etcdPart struct {
	config etcdserver.Config
	member int
}

func (p *etcdPart) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&p.config.Name, "name", "", "the etcd's name")
	flags.StringVar(&p.config.Folder, "dir", "", "folder with one folder per member")
	flags.StringVar(&p.config.LogFile, "log-file", "", "file that it logs to")
	flags.IntSliceVar(&p.config.Ports, "ports", nil, "client port and peer port of each member")
	flags.Int64Var(&p.config.QuotaBytes, "quota-bytes", 0, "size that its database may have (default etcd's own)")
	flags.IntVar(&p.member, "member", 0, "which member this is, from 0 on")
}

func (p *etcdPart) start(ctx context.Context) (func() error, <-chan error, error) {
	p.config.Members = len(p.config.Ports) / 2
	if p.member >= p.config.Members {
		return nil, nil, fmt.Errorf("--ports names %d members, --member %d is none of them", p.config.Members, p.member)
	}
	etcd, err := etcdserver.StartMember(ctx, p.config, p.member)
	if err != nil {
		return nil, nil, err
	}
	return func() error { etcd.Stop(); return nil }, etcd.Failed(), nil
}

// frontDoorPart is one more front door of a running installation with simulated shards.
type frontDoorPart struct {
	folder string
	port   int
}

func (p *frontDoorPart) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&p.folder, "dir", "", "state folder of the installation")
	flags.IntVar(&p.port, "port", 0, "port to listen on")
}

func (p *frontDoorPart) start(ctx context.Context) (func() error, <-chan error, error) {
	folder, err := filepath.Abs(p.folder)
	if err != nil {
		return nil, nil, err
	}
	door, err := installation.StartFrontDoor(ctx, folder, p.port)
	if err != nil {
		return nil, nil, err
	}
	return func() error { door.Stop(); return nil }, nil, nil
}

// apiServerPart is one more API server of a simulated shard of a running installation.
type apiServerPart struct {
	folder  string
	options installation.APIServerOptions
	role    string
}

func (p *apiServerPart) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&p.folder, "dir", "", "state folder of the installation")
	flags.StringVar(&p.options.Shard, "shard", "", "the shard")
	flags.IntVar(&p.options.Port, "port", 0, "port to listen on")
	flags.StringVar(&p.role, "role", string(simshard.Accompanying), "accompanying, with a LogicalCluster controller of its own, or following, as one that has not been elected leader")
}

func (p *apiServerPart) start(ctx context.Context) (func() error, <-chan error, error) {
	folder, err := filepath.Abs(p.folder)
	if err != nil {
		return nil, nil, err
	}
	p.options.Role = simshard.Role(p.role)
	if p.options.Role != simshard.Accompanying && p.options.Role != simshard.Following {
		return nil, nil, fmt.Errorf("--role must be %s or %s", simshard.Accompanying, simshard.Following)
	}
	server, err := installation.StartAPIServer(ctx, folder, p.options)
	if err != nil {
		return nil, nil, err
	}
	return func() error { server.Stop(); return nil }, nil, nil
}
