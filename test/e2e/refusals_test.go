package e2e

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/test/installation"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

// Exit codes, as `kcp-migrate --help` lists them.
const (
	exitDone    = 0
	exitUsage   = 2
	exitRefused = 3
	exitUndone  = 4
)

const (
	// refusalDeadline is far above the ten seconds after which a command gives up: what outlasts it waits without end.
	refusalDeadline = time.Minute
	// mostKeysListed bounds how many keys a refusal lists.
	mostKeysListed = 20
)

// refusal is a move that must not begin.
type refusal struct {
	name string
	// provoke brings about what is refused, until the subtest ends; nil where the arguments alone do.
	provoke func(*testing.T, *stack)
	// arguments are the plan and start commands'.
	arguments []string
	// input is sent through Temporal's API instead, where it is not empty.
	input string
	// timeout is the workflow's, with an input.
	timeout time.Duration

	errorType string
	exitCode  int
	// advice is a piece of the message that says what to do.
	advice string
	// unless is a flag with which it is not refused.
	unless string
}

// What is refused by looking at the arguments alone.
var badArguments = []refusal{
	{name: "unknown workspace", arguments: []string{"root:nowhere", "shard-1"},
		errorType: activities.LogicalClusterNotFound, exitCode: exitRefused, advice: "kubectl ws tree"},
	{name: "unknown logical cluster", arguments: []string{"nosuchcluster0000", "shard-1"},
		errorType: activities.LogicalClusterNotFound, exitCode: exitRefused, advice: "kubectl ws tree"},
	{name: "unknown shard", arguments: []string{consumer, "shard-2"},
		errorType: activities.ShardNotFound, exitCode: exitRefused, advice: "there are: root, shard-1"},
	{name: "destination is the origin", arguments: []string{consumer, "root"},
		errorType: activities.SameShard, exitCode: exitRefused, advice: "name another destination"},
	{name: "root", arguments: []string{"root", "shard-1"},
		errorType: activities.SystemCluster, exitCode: exitRefused, advice: "name a workspace below root"},
	{name: "a shard's own logical cluster", arguments: []string{"system:shard", "shard-1"},
		errorType: activities.SystemCluster, exitCode: exitRefused, advice: "name a workspace below root"},
	{name: "away for longer than allowed", arguments: []string{consumer, "shard-1", "--max-time-away=100ms"},
		errorType: activities.AwayTooLong, exitCode: exitRefused, advice: "raise maxTimeAway"},
	{name: "negative time", arguments: []string{consumer, "shard-1", "--max-time-away=-1s"},
		errorType: activities.InvalidInput, exitCode: exitUsage, advice: "maxTimeAway is negative"},
}

// What only a client of Temporal's own can send.
var badInputs = []refusal{
	{name: "unknown field", input: `{"logicalCluster":"root:consumer","destinationShard":"shard-1","dryrum":true}`,
		errorType: activities.InvalidInput, exitCode: exitUsage, advice: `unknown field "dryrum"; the fields are logicalCluster, destinationShard`},
	{name: "ill-typed field", input: `{"logicalCluster":"root:consumer","destinationShard":"shard-1","dryRun":"yes"}`,
		errorType: activities.InvalidInput, exitCode: exitUsage, advice: "give true or false"},
	{name: "ill-typed duration", input: `{"logicalCluster":"root:consumer","destinationShard":"shard-1","maxTimeAway":"soon"}`,
		errorType: activities.InvalidInput, exitCode: exitUsage, advice: "want a number with a unit"},
	{name: "missing field", input: `{"logicalCluster":"root:consumer"}`,
		errorType: activities.InvalidInput, exitCode: exitUsage, advice: "give the name of a Shard object"},
	{name: "no object", input: `["root:consumer","shard-1"]`,
		errorType: activities.InvalidInput, exitCode: exitUsage, advice: "give an object with the fields"},
	{name: "workflow timeout", input: `{"logicalCluster":"root:consumer","destinationShard":"shard-1"}`, timeout: time.Hour,
		errorType: activities.WorkflowTimeoutSet, exitCode: exitUsage, advice: "use maxTimeAway"},
}

// What stands in the way at the shards.
var badPlaces = []refusal{
	{name: "not ready", provoke: makeUnready, arguments: []string{consumer, "shard-1"},
		errorType: activities.NotReady, exitCode: exitRefused, advice: "it can be moved when it is Ready"},
	{name: "being deleted", provoke: deleteWorkspace, arguments: []string{leaving, "shard-1"},
		errorType: activities.BeingDeleted, exitCode: exitRefused, advice: "let the deletion end"},
	{name: "moving already", provoke: holdAtTheGate, arguments: []string{consumer, "shard-1"},
		errorType: activities.AlreadyMigrating, exitCode: exitRefused, advice: "follow it with"},
	{name: "moving already under another name", provoke: holdAtTheGate, arguments: []string{consumerCluster, "shard-1"},
		errorType: activities.AlreadyMigrating, exitCode: exitRefused, advice: "kcp-migrate status migrate-" + consumer},
	{name: "moved by kcp", provoke: annotateMigrating, arguments: []string{consumer, "shard-1"},
		errorType: activities.AlreadyMigrating, exitCode: exitRefused, advice: "let it end or delete that object"},
	{name: "leftovers", provoke: leaveKeys, arguments: []string{consumer, "shard-1"}, unless: "--discard-leftovers",
		errorType: activities.DestinationNotEmpty, exitCode: exitRefused, advice: "delete them, or go on with discardLeftovers"},
	{name: "leftovers with a LogicalCluster", provoke: leaveLogicalCluster, arguments: []string{consumer, "shard-1", "--discard-leftovers"},
		errorType: activities.DestinationNotEmpty, exitCode: exitRefused, advice: "find out which of the two is the tenant's"},
	{name: "bound CRD missing", provoke: takeBoundCRD, arguments: []string{consumer, "shard-1"},
		errorType: activities.BoundResourceMissing, exitCode: exitRefused, advice: "mend the binding first"},
	{name: "kcp too old at the origin", provoke: ageKcp("root"), arguments: []string{consumer, "shard-1"},
		errorType: activities.KcpTooOld, exitCode: exitRefused, advice: "shard root"},
	{name: "kcp too old at the destination", provoke: ageKcp("shard-1"), arguments: []string{consumer, "shard-1"},
		errorType: activities.KcpTooOld, exitCode: exitRefused, advice: "upgrade it to 0.32 or later"},
	{name: "destination not ready", provoke: unreadyShard, arguments: []string{consumer, "shard-1"}, unless: "--force-destination",
		errorType: activities.ShardNotReady, exitCode: exitRefused, advice: "go on with forceDestination"},
	{name: "destination's etcd is full", provoke: raiseAlarm, arguments: []string{consumer, "shard-1"},
		errorType: activities.NoSpace, exitCode: exitRefused, advice: "mend that and disarm it first"},
}

func TestMove_ThatMustNotBegin_IsRefusedBeforeTheTenantNotices(t *testing.T) {
	stack := start(t, 0)
	for _, row := range slices.Concat(badArguments, badInputs, badPlaces) {
		t.Run(row.name, func(t *testing.T) { stack.requireRefused(t, row) })
	}
	t.Run("worker that cannot start", func(t *testing.T) {
		requireUnnoticed(t, stack, func() { stack.requireWorkersRefused(t) })
	})
	t.Run("no worker beside a shard", func(t *testing.T) {
		require.NoError(t, stack.workers["shard-1"].Stop())
		requireUnnoticed(t, stack, func() {
			stack.requireSays(t, exitRefused, activities.ShardWorkerMissing, "kcp-migrate worker --shard shard-1", "start", consumer, "shard-1", "--wait")
		})
	})
	require.Empty(t, stack.export(t, "root").Claims())
	require.Empty(t, stack.export(t, "shard-1").Claims())
}

func TestMove_WhereSigningKeysDiffer_GoesOnlyWhenTheLossIsAccepted(t *testing.T) {
	t.Parallel()
	stack := start(t, 0, "--separate-signing-keys")
	stack.requireRefused(t, refusal{
		arguments: []string{consumer, "shard-1"}, unless: "--accept-token-loss",
		errorType: activities.TokenLoss, exitCode: exitRefused, advice: "give both shards the same keys",
	})

	result, err := stack.Move(t.Context(), t.Output(), consumer, "shard-1", "--accept-token-loss")
	require.NoError(t, err)
	require.Equal(t, workflows.Completed, result.Phase)
	require.Contains(t, strings.Join(result.Plan.Warnings, "\n"), "ServiceAccounts die")
}

func TestMove_DiscardingLeftovers_LeavesNoneOfThem(t *testing.T) {
	t.Parallel()
	stack := start(t, 0)
	origin := stack.export(t, "root")
	leaveKeys(t, stack)
	leftovers := stack.export(t, "shard-1").Tenant(consumerCluster)
	require.Len(t, leftovers, leftoverKeys)

	result, err := stack.Move(t.Context(), t.Output(), consumer, "shard-1", "--discard-leftovers")
	require.NoError(t, err)
	requireArrived(t, stack, result, origin)
}

// requireRefused asks for a move as a person would, first for its plan, and expects to be told why not.
func (s *stack) requireRefused(t *testing.T, row refusal) {
	t.Helper()
	if row.provoke != nil {
		row.provoke(t, s)
	}
	requireUnnoticed(t, s, func() {
		if row.input != "" {
			s.requireSays(t, row.exitCode, row.errorType, row.advice, "watch", s.send(t, row))
			return
		}
		for _, command := range [][]string{{"plan"}, {"start", "--wait"}} {
			s.requireSays(t, row.exitCode, row.errorType, row.advice, append(command, row.arguments...)...)
		}
		if row.unless != "" {
			s.requireExit(t, exitDone, append([]string{"plan", row.unless}, row.arguments...)...)
		}
	})
}

// send starts a workflow through Temporal's API and gives its ID.
func (s *stack) send(t *testing.T, row refusal) string {
	t.Helper()
	run, err := s.temporal(t).ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: strings.ReplaceAll(row.name, " ", "-"), TaskQueue: workflows.TaskQueue, WorkflowRunTimeout: row.timeout,
	}, workflows.MigrateLogicalClusterName, json.RawMessage(row.input))
	require.NoError(t, err)
	return run.GetID()
}

// requireUnnoticed expects of an attempt that the tenant is served throughout, and that both etcds hold afterwards
// what they held before, claims included.
func requireUnnoticed(t *testing.T, stack *stack, attempt func()) {
	t.Helper()
	origin, destination := stack.settled(t)
	poller := stack.startPoller(t)
	attempt()
	seen := poller.Stop()
	require.Equal(t, []int{http.StatusOK}, slices.Collect(maps.Keys(seen.Answers)))
	require.Empty(t, installation.Difference(origin.Keys, stack.export(t, "root").Keys))
	require.Empty(t, installation.Difference(destination.Keys, stack.export(t, "shard-1").Keys))
}

// settled waits until the shards' controllers have nothing to write any more, and exports both etcds.
func (s *stack) settled(t *testing.T) (origin, destination installation.Export) {
	t.Helper()
	require.Eventually(t, func() bool {
		before := origin.Revision + destination.Revision
		origin, destination = s.export(t, "root"), s.export(t, "shard-1")
		return origin.Revision+destination.Revision == before
	}, moveDeadline, meddlingDelay)
	return origin, destination
}

// requireSays expects a command to end by itself, with a code, a typed error and advice.
func (s *stack) requireSays(t *testing.T, exitCode int, errorType, advice string, arguments ...string) {
	t.Helper()
	started := time.Now()
	said := s.requireExit(t, exitCode, arguments...)
	require.Less(t, time.Since(started), refusalDeadline)
	require.Contains(t, said, errorType+": ")
	require.Contains(t, said, advice)
	require.LessOrEqual(t, strings.Count(said, "/registry/"), mostKeysListed)
}

// requireExit gives what a command says beside its result.
func (s *stack) requireExit(t *testing.T, exitCode int, arguments ...string) string {
	t.Helper()
	var said bytes.Buffer
	outcome, err := s.Run(t.Context(), &said, arguments...)
	require.NoError(t, err)
	require.Equal(t, exitCode, outcome.ExitCode, "%v: %s%s", arguments, outcome.Stdout, &said)
	return said.String()
}

// requireWorkersRefused starts workers with one wrong setting each.
func (s *stack) requireWorkersRefused(t *testing.T) {
	shard, err := s.Shard("shard-1")
	require.NoError(t, err)
	nobody, stranger, nowhere := closedAddress(t), foreignAddress(t), filepath.Join(t.TempDir(), "nowhere")
	for _, row := range []refusal{
		{name: "etcd, nobody listens", arguments: []string{"--etcd-endpoints=http://" + nobody},
			errorType: activities.Unreachable, exitCode: exitRefused, advice: "check the --etcd-… flags"},
		{name: "etcd, wrong certificate", arguments: []string{"--etcd-endpoints=https://" + stranger},
			errorType: activities.Unreachable, exitCode: exitRefused, advice: "certificate"},
		{name: "kcp, nobody listens", arguments: []string{"--api-servers=https://" + nobody},
			errorType: activities.Unreachable, exitCode: exitRefused, advice: "check --kubeconfig and --api-servers"},
		{name: "kcp, wrong certificate", arguments: []string{"--api-servers=https://" + stranger},
			errorType: activities.Unreachable, exitCode: exitRefused, advice: "certificate"},
		{name: "front-proxy, nobody listens", arguments: []string{"--front-proxies=https://" + nobody},
			errorType: activities.Unreachable, exitCode: exitRefused, advice: "check --front-proxy-kubeconfig and --front-proxies"},
		{name: "Temporal, nobody listens", arguments: []string{"--temporal-address=" + nobody},
			errorType: activities.Unreachable, exitCode: exitRefused, advice: "check --temporal-address"},
		{name: "kubeconfig missing", arguments: []string{"--kubeconfig=" + nowhere},
			errorType: activities.InvalidInput, exitCode: exitUsage, advice: "name a file that exists"},
		{name: "kubeconfig without the rights", arguments: []string{"--kubeconfig=" + powerless(t, shard.Kubeconfig)},
			errorType: activities.Forbidden, exitCode: exitRefused, advice: "check --kubeconfig"},
		{name: "misspelt shard", arguments: []string{"--shard=shard1"},
			errorType: activities.ShardNotFound, exitCode: exitRefused, advice: "--shard is one of root, shard-1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			arguments := append([]string{"worker", "--config", shard.WorkerConfig}, row.arguments...)
			s.requireSays(t, row.exitCode, row.errorType, row.advice, arguments...)
		})
	}
}

// closedAddress is one that nobody listens at.
func closedAddress(t *testing.T) string {
	t.Helper()
	addresses, err := installation.FreeAddresses(1)
	require.NoError(t, err)
	return addresses[0]
}

// foreignAddress speaks TLS with a certificate that no configured authority has signed.
func foreignAddress(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// powerless is a kubeconfig like another, of a user whom nobody knows.
func powerless(t *testing.T, kubeconfig string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	require.NoError(t, err)
	for _, user := range config.AuthInfos {
		user.Token = "nobody"
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}
