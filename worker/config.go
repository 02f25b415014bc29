package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// Config is all that a worker must be told; one field a flag.
type Config struct {
	// File is a flat YAML file whose keys are the names of the other flags.
	File string

	Shard string

	EtcdEndpoints    []string
	EtcdPrefix       string
	EtcdCAFile       string
	EtcdCertFile     string
	EtcdKeyFile      string
	EtcdUsername     string
	EtcdPasswordFile string

	MaxEntriesPerSecond int
	MaxBytesPerSecond   int
	Brake               bool

	EncryptionProviderConfig string

	Kubeconfig           string
	APIServers           []string
	FrontProxyKubeconfig string
	FrontProxies         []string
	CacheKubeconfig      string

	TransferListen    string
	TransferAdvertise []string
	TransferCAFile    string
	TransferCertFile  string
	TransferKeyFile   string

	Temporal TemporalConfig

	HealthListen string
	LogLevel     string
	LogFormat    string
}

// AddFlags declares a flag for each field.
func (c *Config) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.File, configFlag, "", "YAML `file` whose keys are these flags' names")
	flags.StringVar(&c.Shard, "shard", "", "name of the Shard object that this worker stands beside")

	flags.StringSliceVar(&c.EtcdEndpoints, "etcd-endpoints", nil, "`URLs` of the shard's etcd members")
	flags.StringVar(&c.EtcdPrefix, "etcd-prefix", "/registry", "the shard's --etcd-prefix")
	flags.StringVar(&c.EtcdCAFile, "etcd-ca-file", "", "`file` with the CA that signed etcd's certificates")
	flags.StringVar(&c.EtcdCertFile, "etcd-cert-file", "", "`file` with the client certificate for etcd")
	flags.StringVar(&c.EtcdKeyFile, "etcd-key-file", "", "`file` with the client certificate's key")
	flags.StringVar(&c.EtcdUsername, "etcd-username", "", "etcd user, where etcd has authentication")
	flags.StringVar(&c.EtcdPasswordFile, "etcd-password-file", "", "`file` with that user's password")

	flags.IntVar(&c.MaxEntriesPerSecond, "max-entries-per-second", 0,
		"most entries that this worker reads, writes or deletes in the shard's etcd in a second, in all moves together (0 means no limit)")
	flags.IntVar(&c.MaxBytesPerSecond, "max-bytes-per-second", 0, "the same in bytes of keys and values (0 means no limit)")
	flags.BoolVar(&c.Brake, "brake", true, "slow moves down while they make others wait for the shard's etcd")

	flags.StringVar(&c.EncryptionProviderConfig, "encryption-provider-config", "",
		"`file` with the EncryptionConfiguration that the shard's API servers are started with, where they are")

	flags.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig `file` with admin credentials for the shard itself")
	flags.StringSliceVar(&c.APIServers, "api-servers", nil,
		"`URLs` of every one of the shard's API servers (default the kubeconfig's server)")
	flags.StringVar(&c.FrontProxyKubeconfig, "front-proxy-kubeconfig", "", "kubeconfig `file` with admin credentials for the front-proxy")
	flags.StringSliceVar(&c.FrontProxies, "front-proxies", nil,
		"`URLs` of every front-proxy (default the kubeconfig's server)")
	flags.StringVar(&c.CacheKubeconfig, "cache-kubeconfig", "",
		"kubeconfig `file` for kcp's cache server, the one the shard itself has; without it a moved API provider's copies there stay as they were")

	flags.StringVar(&c.TransferListen, "transfer-listen", "",
		"`address` to serve this shard's entries at, the same after a restart; off loopback it needs the three transfer files")
	flags.StringSliceVar(&c.TransferAdvertise, "transfer-advertise", nil,
		"`addresses` at which other shards' workers reach this shard's: one that leads to all of them, as a Service's does, or each worker's (default the listening one)")
	flags.StringVar(&c.TransferCAFile, "transfer-ca-file", "", "`file` with the CA that signed all workers' certificates")
	flags.StringVar(&c.TransferCertFile, "transfer-cert-file", "", "`file` with this worker's certificate")
	flags.StringVar(&c.TransferKeyFile, "transfer-key-file", "", "`file` with this worker's key")

	c.Temporal.AddFlags(flags)

	flags.StringVar(&c.HealthListen, "health-listen", "127.0.0.1:0", "`address` of /healthz, /readyz and /metrics")
	flags.StringVar(&c.LogLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&c.LogFormat, "log-format", "", "json or text (default text on a terminal, else json)")
}

// Validate names every field that is missing or wrong; it looks at nothing outside.
func (c *Config) Validate() error {
	var problems []error
	for _, required := range []struct {
		flag  string
		given bool
	}{
		{"shard", c.Shard != ""},
		{"etcd-endpoints", len(c.EtcdEndpoints) > 0},
		{"kubeconfig", c.Kubeconfig != ""},
		{"front-proxy-kubeconfig", c.FrontProxyKubeconfig != ""},
		{"transfer-listen", c.TransferListen != ""},
	} {
		if !required.given {
			problems = append(problems, fmt.Errorf("--%s (or %s, or %s in the config file) is missing",
				required.flag, EnvironmentVariable(required.flag), required.flag))
		}
	}
	return errors.Join(append(problems,
		sameOrNone("etcd-cert-file", c.EtcdCertFile, "etcd-key-file", c.EtcdKeyFile),
		sameOrNone("etcd-username", c.EtcdUsername, "etcd-password-file", c.EtcdPasswordFile),
		sameOrNone("transfer-cert-file", c.TransferCertFile, "transfer-key-file", c.TransferKeyFile),
		sameOrNone("transfer-cert-file", c.TransferCertFile, "transfer-ca-file", c.TransferCAFile),
		notNegative("max-entries-per-second", c.MaxEntriesPerSecond),
		notNegative("max-bytes-per-second", c.MaxBytesPerSecond),
		c.validateTransfer(),
		c.validateLog(),
	)...)
}

func (c *Config) validateLog() error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return fmt.Errorf("--log-level %q is none of debug, info, warn, error", c.LogLevel)
	}
	switch c.LogFormat {
	case "", logJSON, logText:
		return nil
	default:
		return fmt.Errorf("--log-format %q is neither json nor text", c.LogFormat)
	}
}

func sameOrNone(oneFlag, one, otherFlag, other string) error {
	if (one == "") == (other == "") {
		return nil
	}
	return fmt.Errorf("--%s and --%s need each other", oneFlag, otherFlag)
}

func notNegative(flag string, value int) error {
	if value >= 0 {
		return nil
	}
	return fmt.Errorf("--%s %d is negative", flag, value)
}

func (c *Config) etcdPassword() (string, error) {
	if c.EtcdPasswordFile == "" {
		return "", nil
	}
	password, err := os.ReadFile(c.EtcdPasswordFile)
	if err != nil {
		return "", fmt.Errorf("read --etcd-password-file: %w", err)
	}
	return strings.TrimRight(string(password), "\r\n"), nil
}

// LoadConfig reads a worker's config file for somebody else than that worker: flags and environment do not count.
func LoadConfig(path string) (*Config, error) {
	config := &Config{}
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Set(configFlag, path); err != nil {
		return nil, err
	}
	noEnvironment := func(string) (string, bool) { return "", false }
	if err := Complete(flags, noEnvironment); err != nil {
		return nil, err
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("read config file %s: %w", path, err)
	}
	return config, nil
}
