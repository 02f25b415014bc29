package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/fixtures"
	"github.com/kcp-migrate/kcp-migrate/cmd/devstack/installation"
)

// flags are the command line's.
type flags struct {
	folder         string
	keep           bool
	entries        int
	realKcp        bool
	freePorts      bool
	apiServers     int
	leaderElection bool
	frontDoors     int
	etcdMembers    int
	separateKeys   bool
	encryption     map[string]string
	etcdPrefixes   map[string]string
	temporalFile   string
	temporal       string
	etcds          map[string]string
	quiet          bool
	exitWithParent bool
}

func parseFlags(args []string, stderr io.Writer) (flags, error) {
	var f flags
	set := pflag.NewFlagSet("devstack", pflag.ContinueOnError)
	set.SortFlags = false
	set.SetOutput(stderr)
	set.Usage = func() {
		fmt.Fprintf(stderr, "devstack runs Temporal with its web UI, two etcds, and a stand-in for a two-shard kcp, in one process.\n\nUsage: devstack [flags]\n       devstack temporal|etcd|front-door|api-server [flags]   one part in a process of its own\n\n%s", set.FlagUsages())
	}
	set.StringVar(&f.folder, "dir", "", "state folder, its shards are filled anew at each start (default a temporary one)")
	set.BoolVar(&f.keep, "keep", false, "keep the temporary state folder at exit")
	set.IntVar(&f.entries, "entries", 0, "add so many ConfigMaps of 1 kB to the tenant root:consumer")
	set.BoolVar(&f.realKcp, "kcp", false, "start a real kcp from the binaries in $KCP_BIN_DIR or on PATH instead of the stand-in")
	set.BoolVar(&f.freePorts, "free-ports", false, "use free ports instead of 7233, 8233 and 6443")
	set.IntVar(&f.apiServers, "api-servers", 1, "API servers of each shard")
	set.BoolVar(&f.leaderElection, "leader-election", false, "have the API servers of each shard of a real kcp elect a leader")
	set.IntVar(&f.frontDoors, "front-doors", 1, "front doors")
	set.IntVar(&f.etcdMembers, "etcd-members", 1, "members of each shard's etcd, 1 or 3")
	set.BoolVar(&f.separateKeys, "separate-signing-keys", false, "give each shard of the stand-in its own keys for service-account tokens")
	set.StringToStringVar(&f.encryption, "encryption-provider-config", nil, "`shard=file` with the EncryptionConfiguration of a shard of a real kcp")
	set.StringToStringVar(&f.etcdPrefixes, "etcd-prefix", nil, "`shard=prefix` of the keys of a shard of a real kcp (default /registry)")
	set.StringVar(&f.temporalFile, "temporal-file", "", "keep Temporal's state in this file across restarts (default in memory)")
	set.StringVar(&f.temporal, "temporal-address", "", "use the Temporal that runs there (devstack temporal) instead of one of its own")
	set.StringToStringVar(&f.etcds, "etcd", nil, "use the empty etcd of a shard that runs there (devstack etcd), as <shard>=<URL>, instead of one of its own;\nonce for each shard, members separated by blanks")
	set.BoolVar(&f.quiet, "quiet", false, "print nothing once all serves")
	set.BoolVar(&f.exitWithParent, "exit-with-parent", false, "stop when the process that started this one ends")
	if err := set.Parse(args); err != nil {
		return flags{}, err
	}
	if set.NArg() > 0 {
		return flags{}, fmt.Errorf("unknown argument %q", set.Arg(0))
	}
	return f, f.validate()
}

func (f flags) validate() error {
	switch {
	case f.entries < 0:
		return errors.New("--entries must not be negative")
	case f.apiServers < 1:
		return errors.New("--api-servers must be at least 1")
	case f.frontDoors < 1:
		return errors.New("--front-doors must be at least 1")
	case f.separateKeys && f.realKcp:
		return errors.New("--separate-signing-keys is for the stand-in only")
	case f.leaderElection && !f.realKcp:
		return errors.New("--leader-election is for a real kcp only; the stand-in has devstack api-server --role=following")
	case len(f.encryption)+len(f.etcdPrefixes) > 0 && !f.realKcp:
		return errors.New("--encryption-provider-config and --etcd-prefix are for a real kcp only")
	case len(f.etcds) > 0 && len(f.etcds) != len(fixtures.Shards):
		return errors.New("--etcd must be given for every shard or for none")
	case f.etcdMembers != 1 && f.etcdMembers != 3:
		return errors.New("--etcd-members must be 1 or 3")
	}
	return nil
}

// options gives all but the folder.
func (f flags) options() (installation.Options, error) {
	options := installation.Options{
		Kind:                installation.Simulated,
		Entries:             f.entries,
		APIServers:          f.apiServers,
		LeaderElection:      f.leaderElection,
		EtcdMembers:         f.etcdMembers,
		SeparateSigningKeys: f.separateKeys,
		EncryptionConfigs:   f.encryption,
		EtcdPrefixes:        f.etcdPrefixes,
		TemporalAddress:     f.temporal,
		Etcds:               map[string][]string{},
	}
	for shard, endpoints := range f.etcds {
		options.Etcds[shard] = strings.Fields(endpoints)
	}
	if f.realKcp {
		options.Kind = installation.RealKcp
	}
	var err error
	if f.temporalFile != "" {
		// SQLite's own working folder need not be ours.
		if options.TemporalFile, err = filepath.Abs(f.temporalFile); err != nil {
			return installation.Options{}, err
		}
	}
	choosePorts := installation.FixedPorts
	if f.freePorts {
		choosePorts = installation.FreePorts
	}
	options.Ports, err = choosePorts(f.frontDoors)
	return options, err
}
