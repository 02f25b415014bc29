package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

const minimalConfig = `
shard: shard-1
etcd-endpoints: [http://127.0.0.1:2379, http://127.0.0.1:2381]
kubeconfig: shard-1.kubeconfig
front-proxy-kubeconfig: admin.kubeconfig
transfer-listen: 127.0.0.1:7443
`

func writeConfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "worker.yaml")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func complete(t *testing.T, environment map[string]string, arguments ...string) (*Config, error) {
	t.Helper()
	config := &Config{}
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	config.AddFlags(flags)
	require.NoError(t, flags.Parse(arguments))
	return config, Complete(flags, func(name string) (string, bool) {
		value, found := environment[name]
		return value, found
	})
}

func TestComplete_TakesFlagBeforeEnvironmentBeforeFileBeforeDefault(t *testing.T) {
	file := writeConfig(t, "shard: from-file\nlog-level: from-file\netcd-prefix: from-file\n")
	environment := map[string]string{"KCP_MIGRATE_SHARD": "from-environment", "KCP_MIGRATE_LOG_LEVEL": "from-environment"}

	config, err := complete(t, environment, "--config", file, "--shard", "from-flag")

	require.NoError(t, err)
	require.Equal(t, "from-flag", config.Shard)
	require.Equal(t, "from-environment", config.LogLevel)
	require.Equal(t, "from-file", config.EtcdPrefix)
	require.Equal(t, "127.0.0.1:0", config.HealthListen)
}

func TestComplete_FindsTheFileThroughTheEnvironment(t *testing.T) {
	config, err := complete(t, map[string]string{"KCP_MIGRATE_CONFIG": writeConfig(t, minimalConfig)})

	require.NoError(t, err)
	require.Equal(t, "shard-1", config.Shard)
}

func TestComplete_ReadsListsFromFileEnvironmentAndFlags(t *testing.T) {
	want := []string{"https://one", "https://two"}
	for name, read := range map[string]func() (*Config, error){
		"file": func() (*Config, error) {
			return complete(t, nil, "--config", writeConfig(t, "api-servers: [https://one, https://two]"))
		},
		"file, one after the other": func() (*Config, error) {
			return complete(t, nil, "--config", writeConfig(t, "api-servers: https://one,https://two"))
		},
		"environment": func() (*Config, error) {
			return complete(t, map[string]string{"KCP_MIGRATE_API_SERVERS": "https://one,https://two"})
		},
		"flags": func() (*Config, error) {
			return complete(t, nil, "--api-servers", "https://one", "--api-servers", "https://two")
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := read()
			require.NoError(t, err)
			require.Equal(t, want, config.APIServers)
		})
	}
}

func TestComplete_RefusesFilesThatItCannotUse(t *testing.T) {
	for name, c := range map[string]struct{ content, problem string }{
		"unknown key":          {"shrad: root", `unknown key "shrad"`},
		"a file in the file":   {"config: other.yaml", `unknown key "config"`},
		"list for one value":   {"shard: [a, b]", `key "shard": wants one value, has a list`},
		"object for one value": {"shard: {name: a}", `key "shard": wants a string`},
		"nothing for a value":  {"shard:", `key "shard": wants a string`},
		"key twice":            {"shard: a\nshard: b", "already"},
		"no YAML":              {"shard: [", "read config file"},
	} {
		t.Run(name, func(t *testing.T) {
			file := writeConfig(t, c.content)
			_, err := complete(t, nil, "--config", file)
			require.ErrorContains(t, err, c.problem)
			require.ErrorContains(t, err, file)
		})
	}
	_, err := complete(t, nil, "--config", "nowhere.yaml")
	require.ErrorContains(t, err, "nowhere.yaml")
}

func TestLoadConfig_IgnoresTheEnvironment(t *testing.T) {
	t.Setenv("KCP_MIGRATE_SHARD", "another")

	config, err := LoadConfig(writeConfig(t, minimalConfig))

	require.NoError(t, err)
	require.Equal(t, "shard-1", config.Shard)
	require.Equal(t, []string{"http://127.0.0.1:2379", "http://127.0.0.1:2381"}, config.EtcdEndpoints)
}

func TestValidate_NamesEveryMissingSetting(t *testing.T) {
	config, err := complete(t, nil)
	require.NoError(t, err)

	err = config.Validate()

	for _, setting := range []string{"--shard", "--etcd-endpoints", "--kubeconfig", "--front-proxy-kubeconfig", "--transfer-listen"} {
		require.ErrorContains(t, err, setting+" (or KCP_MIGRATE_")
	}
}

func TestValidate_RefusesWhatCannotWork(t *testing.T) {
	files := []string{"--transfer-ca-file=ca", "--transfer-cert-file=cert", "--transfer-key-file=key"}
	for name, c := range map[string]struct {
		arguments []string
		problem   string
	}{
		"as it is":                         {nil, ""},
		"certificate without key":          {[]string{"--etcd-cert-file=cert"}, "--etcd-cert-file and --etcd-key-file need each other"},
		"user without password":            {[]string{"--etcd-username=kcp"}, "--etcd-username and --etcd-password-file need each other"},
		"transfer certificate alone":       {[]string{"--transfer-cert-file=cert", "--transfer-key-file=key"}, "--transfer-ca-file need each other"},
		"unknown level":                    {[]string{"--log-level=loud"}, "--log-level"},
		"unknown format":                   {[]string{"--log-format=xml"}, "--log-format"},
		"plaintext off loopback":           {[]string{"--transfer-listen=10.0.0.1:7443"}, "mutual TLS only"},
		"plaintext everywhere":             {[]string{"--transfer-listen=:7443"}, "mutual TLS only"},
		"TLS everywhere, no name":          {append(files, "--transfer-listen=:7443"), "--transfer-advertise is missing"},
		"TLS on every address, no name":    {append(files, "--transfer-listen=[::]:7443"), "--transfer-advertise is missing"},
		"TLS everywhere, with a name":      {append(files, "--transfer-listen=:7443", "--transfer-advertise=worker.example:7443"), ""},
		"a name without a port":            {append(files, "--transfer-listen=:7443", "--transfer-advertise=one:7443,two"), `"two" is not host:port`},
		"TLS on one address":               {append(files, "--transfer-listen=10.0.0.1:7443"), ""},
		"plaintext on loopback by name":    {[]string{"--transfer-listen=localhost:7443"}, ""},
		"address without a port":           {[]string{"--transfer-listen=localhost"}, "is not host:port"},
		"plaintext on loopback of IPv6":    {[]string{"--transfer-listen=[::1]:7443"}, ""},
		"plaintext by a name that is none": {[]string{"--transfer-listen=worker.example:7443"}, "mutual TLS only"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := complete(t, nil, append([]string{"--config", writeConfig(t, minimalConfig)}, c.arguments...)...)
			require.NoError(t, err)
			err = config.Validate()
			if c.problem == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.problem)
			}
		})
	}
}

func TestEtcdPassword_ComesWithoutTheLineEnd(t *testing.T) {
	config := &Config{EtcdPasswordFile: writeConfig(t, "secret\r\n")}

	password, err := config.etcdPassword()

	require.NoError(t, err)
	require.Equal(t, "secret", password)
}

func TestEncryption_ThatCannotBeUsed_IsRefusedByItsFlagAndWithoutASecret(t *testing.T) {
	for content, problem := range map[string]string{
		"kind: Secret": `"Secret"`,
		`{apiVersion: apiserver.config.k8s.io/v1, kind: EncryptionConfiguration,
			resources: [{resources: [secrets], providers: [{kms: {apiVersion: v2, name: vault, endpoint: hunter2}}]}]}`: "kms",
	} {
		config := &Config{EncryptionProviderConfig: writeConfig(t, strings.ReplaceAll(content, "\t", ""))}
		_, err := config.encryption()
		requireType(t, activities.InvalidInput, err)
		require.ErrorContains(t, err, "--encryption-provider-config")
		require.ErrorContains(t, err, problem)
		require.NotContains(t, err.Error(), "hunter2")
	}
}
