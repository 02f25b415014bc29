package installation

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Announce tells a person what runs where and what to try.
func (s State) Announce(out io.Writer) error {
	if _, err := fmt.Fprintln(out, s.headline()); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := [][2]string{
		{"web UI", s.UIURL},
		{"Temporal", s.TemporalAddress},
		{"front door", strings.Join(s.FrontProxies, " ")},
	}
	for _, shard := range s.Shards {
		rows = append(rows,
			[2]string{"shard " + shard.Name, strings.Join(shard.APIServers, " ")},
			[2]string{"etcd of " + shard.Name, strings.Join(shard.EtcdEndpoints, " ")})
	}
	rows = append(rows, [2]string{"files", s.Folder})
	for _, row := range rows {
		if _, err := fmt.Fprintf(table, "  %s\t%s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nTry:\n  %s\n\nCtrl-C stops it all.\n", strings.Join(s.commands(), "\n  "))
	return err
}

func (s State) headline() string {
	if s.RealKcp {
		return "A real kcp with two shards, and Temporal, for trying and testing:"
	}
	return "A stand-in for kcp with two simulated shards (not kcp itself) over real etcds, and a real Temporal:"
}

func (s State) commands() []string {
	var commands []string
	for _, shard := range s.Shards {
		commands = append(commands, "kcp-migrate worker --config "+shard.WorkerConfig)
	}
	temporal := " --temporal-address " + s.TemporalAddress
	return append(commands,
		"kcp-migrate plan root:consumer shard-1"+temporal,
		"kcp-migrate start root:consumer shard-1 --wait"+temporal,
		"kubectl --kubeconfig "+s.Kubeconfig+" get workspaces",
	)
}
