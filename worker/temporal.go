package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	temporallog "go.temporal.io/sdk/log"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// temporalPatience bounds how long Temporal may take to answer before it counts as unreachable.
const temporalPatience = 5 * time.Second

// TemporalConfig says how to reach Temporal. What it leaves out comes from TEMPORAL_* variables and the
// profile in Temporal's own TOML file, TLS and API key included.
type TemporalConfig struct {
	Address   string
	Namespace string
	Profile   string
}

// AddFlags declares a flag for each field.
func (c *TemporalConfig) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.Address, "temporal-address", "", "`host:port` of Temporal (default TEMPORAL_ADDRESS, the profile's, or 127.0.0.1:7233)")
	flags.StringVar(&c.Namespace, "temporal-namespace", "", "Temporal `namespace` (default TEMPORAL_NAMESPACE, the profile's, or default)")
	flags.StringVar(&c.Profile, "temporal-profile", "", "`profile` in Temporal's TOML file, which also brings TLS and API key (default TEMPORAL_PROFILE)")
}

// Dial connects to Temporal. The error is of type Unreachable where it does not answer.
func (c *TemporalConfig) Dial(ctx context.Context, logger *slog.Logger, metrics client.MetricsHandler) (client.Client, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	options.Logger = temporallog.NewStructuredLogger(logger)
	options.MetricsHandler = metrics
	ctx, cancel := context.WithTimeout(ctx, temporalPatience)
	defer cancel()
	temporal, err := client.DialContext(ctx, options)
	if err != nil {
		return nil, activities.Refuse(activities.Unreachable,
			"connect to Temporal at %s: %v: check --temporal-address and, where Temporal wants TLS, the profile's certificates",
			options.HostPort, err)
	}
	return temporal, nil
}

func (c *TemporalConfig) options() (client.Options, error) {
	options, err := envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{ConfigFileProfile: c.Profile})
	if err != nil {
		return client.Options{}, activities.Refuse(activities.InvalidInput,
			"read Temporal's settings from its TOML file and TEMPORAL_* variables: %v", err)
	}
	options.HostPort = cmp.Or(c.Address, options.HostPort, "127.0.0.1:7233")
	options.Namespace = cmp.Or(c.Namespace, options.Namespace, client.DefaultNamespace)
	return options, nil
}

// EffectiveNamespace is the namespace that Dial connects to.
func (c *TemporalConfig) EffectiveNamespace() (string, error) {
	options, err := c.options()
	return options.Namespace, err
}

// checkNamespace makes sure that moves can run in the namespace: that it exists and knows the moves' search attributes.
func checkNamespace(ctx context.Context, temporal client.Client, namespace string) error {
	_, err := temporal.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if missing := (*serviceerror.NamespaceNotFound)(nil); errors.As(err, &missing) {
		return activities.Refuse(activities.InvalidInput,
			"find Temporal namespace %s: there is none; create it with `temporal operator namespace create --namespace %s`", namespace, namespace)
	}
	if err != nil {
		return fmt.Errorf("find Temporal namespace %s: %w", namespace, err)
	}
	return ensureSearchAttributes(ctx, temporal, namespace)
}

// ensureSearchAttributes adds those that are missing: a move that sets an unknown one does not get on.
func ensureSearchAttributes(ctx context.Context, temporal client.Client, namespace string) error {
	present, err := temporal.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return fmt.Errorf("list search attributes of Temporal namespace %s: %w", namespace, err)
	}
	missing := map[string]enumspb.IndexedValueType{}
	var commands []string
	for _, name := range []string{
		workflows.LogicalClusterAttribute, workflows.OriginShardAttribute, workflows.DestinationShardAttribute, workflows.PhaseAttribute,
	} {
		if _, found := present.GetCustomAttributes()[name]; !found {
			missing[name] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
			commands = append(commands, fmt.Sprintf(
				"temporal operator search-attribute create --namespace %s --name %s --type Keyword", namespace, name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = temporal.OperatorService().AddSearchAttributes(ctx,
		&operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	// Two workers that start together may both find them missing.
	if exists := (*serviceerror.AlreadyExists)(nil); err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("add search attributes to Temporal namespace %s: %w; have somebody with the right run:\n  %s",
			namespace, err, strings.Join(commands, "\n  "))
	}
	return nil
}
