package workflows_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/workflows"
)

func usualFacts(t *testing.T) workflows.Facts {
	w := newWorld(t)
	return workflows.Facts{
		Input:       usualInput,
		Location:    activities.Location{LogicalCluster: tenant, Path: tenantPath, Shard: origin},
		Origin:      w.originReport,
		Destination: w.destinationReport,
	}
}

func TestNewPlan_WhatCannotBeMoved_IsRefusedWithAType(t *testing.T) {
	leftovers := []string{"/registry/core/configmaps/" + tenant + "/default/left"}
	for _, test := range []struct {
		name   string
		change func(*workflows.Facts)
		want   string
		says   string
		unless func(*workflows.Input)
	}{
		{"origin before 0.32", func(f *workflows.Facts) { f.Origin.Version.FencesByAnnotation = false }, activities.KcpTooOld, "shard root", nil},
		{"destination before 0.32", func(f *workflows.Facts) { f.Destination.Version.FencesByAnnotation = false }, activities.KcpTooOld, "shard shard-1", nil},
		{"origin's worker too old", func(f *workflows.Facts) { f.Destination.Protocols.Newest = 2 }, activities.WorkerTooOld,
			"shard root's worker serves transfer protocol 1, that of shard shard-1 knows transfer protocols 1 to 2; upgrade the workers of shard root", nil},
		{"destination's worker too old", func(f *workflows.Facts) { f.Origin.Protocols = activities.Protocols{Oldest: 2, Newest: 3} }, activities.WorkerTooOld,
			"upgrade the workers of shard shard-1", nil},
		{"destination older", func(f *workflows.Facts) { f.Origin.Version.Kcp = "v0.33.0" }, activities.DestinationOlder, "forceDestination",
			func(i *workflows.Input) { i.ForceDestination = true }},
		{"keys differ", func(f *workflows.Facts) { f.Destination.SigningKeys = "others" }, activities.TokenLoss, "acceptTokenLoss",
			func(i *workflows.Input) { i.AcceptTokenLoss = true }},
		{"leftovers", func(f *workflows.Facts) { f.Destination.Leftovers = leftovers }, activities.DestinationNotEmpty, leftovers[0],
			func(i *workflows.Input) { i.DiscardLeftovers = true }},
		{"leftovers with a LogicalCluster", func(f *workflows.Facts) {
			f.Destination.Leftovers, f.Destination.HasLogicalCluster = leftovers, true
			f.Input.DiscardLeftovers = true
		}, activities.DestinationNotEmpty, "of its own", nil},
		{"alarm at the destination", func(f *workflows.Facts) { f.Destination.Health.Alarms = []string{"NOSPACE"} }, activities.NoSpace, "shard shard-1 has raised NOSPACE", nil},
		{"alarm at the origin", func(f *workflows.Facts) { f.Origin.Health.Alarms = []string{"CORRUPT"} }, activities.NoSpace, "shard root has raised CORRUPT", nil},
		{"quota too small", func(f *workflows.Facts) {
			f.Destination.Health.QuotaBytes, f.Destination.Health.DatabaseBytes = 20_000_000, 10_000_000
		}, activities.NoSpace, "12525000 more", nil},
		{"away too long", func(f *workflows.Facts) { f.Input.MaxTimeAway = workflows.Duration(500 * time.Millisecond) }, activities.AwayTooLong, "about 676ms",
			func(i *workflows.Input) { i.MaxTimeAway = 0 }},
		{"limited at the origin", func(f *workflows.Facts) { f.Origin.Health.MaxEntriesPerSecond = 1 }, activities.AwayTooLong, "--max-entries-per-second",
			func(i *workflows.Input) { i.MaxTimeAway = workflows.Duration(24 * time.Hour) }},
		{"limited at the destination", func(f *workflows.Facts) { f.Destination.Health.MaxBytesPerSecond = 1 }, activities.AwayTooLong, "--max-bytes-per-second",
			func(i *workflows.Input) { i.MaxTimeAway = workflows.Duration(10_000 * time.Hour) }},
		{"minimum fence longer than allowed", func(f *workflows.Facts) {
			f.Input.MaxRevisionLift, f.Input.MaxTimeAway = 1, workflows.Duration(time.Second)
		}, activities.AwayTooLong, "about 2s", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			facts := usualFacts(t)
			test.change(&facts)
			_, err := workflows.NewPlan(facts)

			var refusal *temporal.ApplicationError
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, test.want, refusal.Type())
			require.True(t, refusal.NonRetryable())
			require.Contains(t, refusal.Message(), test.says)
			if test.unless != nil {
				test.unless(&facts.Input)
				_, err := workflows.NewPlan(facts)
				require.NoError(t, err)
			}
		})
	}
}

func TestNewPlan_WhatIsNoHindrance_IsAccepted(t *testing.T) {
	for name, change := range map[string]func(*workflows.Facts){
		"nothing special":                func(*workflows.Facts) {},
		"worker that tells no protocol":  func(f *workflows.Facts) { f.Origin.Protocols = activities.Protocols{Oldest: 1, Newest: 1} },
		"newer worker at the origin":     func(f *workflows.Facts) { f.Origin.Protocols = activities.Protocols{Oldest: 1, Newest: 2} },
		"destination newer":              func(f *workflows.Facts) { f.Destination.Version.Kcp = "v0.33.1" },
		"versions not told":              func(f *workflows.Facts) { f.Origin.Version.Kcp, f.Destination.Version.Kcp = "", "" },
		"destination built later":        func(f *workflows.Facts) { f.Destination.Version.Kcp = "v0.32.3-14-gabcdef" },
		"keys differ, no ServiceAccount": func(f *workflows.Facts) { f.Destination.SigningKeys, f.Origin.Contents.ServiceAccounts = "others", 0 },
		"quota unknown":                  func(f *workflows.Facts) { f.Destination.Health.DatabaseBytes = 1 << 40 },
		"quota just enough": func(f *workflows.Facts) {
			f.Destination.Health.QuotaBytes, f.Destination.Health.DatabaseBytes = 22_525_000, 10_000_000
		},
		"destination's revision far above": func(f *workflows.Facts) { f.Destination.Health.Revision = 1 << 40 },
	} {
		t.Run(name, func(t *testing.T) {
			facts := usualFacts(t)
			change(&facts)
			_, err := workflows.NewPlan(facts)
			require.NoError(t, err)
		})
	}
}

func TestNewPlan_Revisions_AreLiftedToAMarginAboveTheOrigins(t *testing.T) {
	for _, test := range []struct {
		name                string
		origin, destination int64
		limit               int64
		lift                int64
		fence               time.Duration
	}{
		{"far below", 9_000, 4_000, 0, 6_000, 0},
		{"just below", 9_000, 8_999, 0, 1_001, 0},
		{"above, but close", 9_000, 9_400, 0, 600, 0},
		{"above by the margin", 9_000, 10_000, 0, 0, 0},
		{"far above", 9_000, 90_000, 0, 0, 0},
		{"as far as the limit", 9_000, 4_000, 6_000, 6_000, 0},
		{"beyond the limit", 9_000, 4_000, 5_999, 0, 2 * time.Second},
		{"beyond the usual limit", 20_000_000, 1, 0, 0, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			facts := usualFacts(t)
			facts.Input.MaxRevisionLift = test.limit
			facts.Origin.Health.Revision, facts.Destination.Health.Revision = test.origin, test.destination
			plan, err := workflows.NewPlan(facts)
			require.NoError(t, err)
			require.Equal(t, test.lift, plan.RevisionLift)
			require.Equal(t, test.fence, time.Duration(plan.MinimumFence))
			require.Equal(t, test.fence > 0, strings.Contains(strings.Join(plan.Warnings, "\n"), "kcp #4250"))
		})
	}
}

func TestNewPlan_ExpectedTimeAway_GrowsWithTheTenantAlone(t *testing.T) {
	for _, test := range []struct {
		entries, bytes int64
		want           time.Duration
	}{
		{0, 0, 300 * time.Millisecond},
		{20_000, 0, 1300 * time.Millisecond},
		{0, 40_000_000, 1300 * time.Millisecond},
		{5_000, 5_000_000, 675 * time.Millisecond},
	} {
		facts := usualFacts(t)
		facts.Origin.Entries, facts.Origin.Bytes = test.entries, test.bytes
		facts.Destination.Health.DatabaseBytes = test.entries * 1_000_000
		plan, err := workflows.NewPlan(facts)
		require.NoError(t, err)
		require.Equal(t, test.want, time.Duration(plan.ExpectedTimeAway))
	}
}

func TestNewPlan_WhatAPersonShouldKnow_IsWarnedOf(t *testing.T) {
	facts := usualFacts(t)
	facts.Origin.Contents.TokenSecrets = 2
	facts.Origin.Contents.ChildWorkspaces = []string{"child"}
	facts.Origin.Contents.APIExports = []string{"wild"}
	facts.Origin.Version.Kcp = "v0.33.0"
	facts.Origin.Encrypted = []keyspace.Family{{Group: "core", Resource: "configmaps"}, {Group: "core", Resource: "secrets"}}
	facts.Destination.Encrypted = facts.Origin.Encrypted[:1]
	facts.Destination.SigningKeys = "others"
	facts.Input.ForceDestination, facts.Input.AcceptTokenLoss = true, true
	plan, err := workflows.NewPlan(facts)

	require.NoError(t, err)
	require.Equal(t, []string{"child"}, plan.NotMoved)
	require.Equal(t, []string{"schema-1"}, plan.BoundCRDs)
	require.Equal(t, []string{
		"clients that watch all logical clusters of shard root see the tenant's objects deleted there",
		"ca.crt in 2 token Secrets changes to the destination's",
		"it holds APIExports (wild), and the workers of shard root have no access to kcp's cache server, which keeps copies of them: later changes may not reach consumers, and the origin's virtual workspace may refuse (docs/kcp-findings.md, Trap 5); give the workers --cache-kubeconfig first",
		"the tokens of 1 ServiceAccounts die: the shards check them with different keys",
		"shard root encrypts these at rest and shard shard-1 does not: core/secrets",
		"kcp is older on shard shard-1 than on shard root",
	}, plan.Warnings)
}

func TestNewPlan_ProviderWithAccessToTheCacheServer_IsNoCauseForAWarning(t *testing.T) {
	facts := usualFacts(t)
	facts.Origin.Contents.APIExports = []string{"wild"}
	facts.Origin.ReachesCache = true
	plan, err := workflows.NewPlan(facts)

	require.NoError(t, err)
	require.True(t, plan.RenewsCachedCopies)
	require.Len(t, plan.Warnings, 1)
}

func TestNewPlan_WhereABrakeMayStretchItBeyondMaxTimeAway_Warns(t *testing.T) {
	facts := usualFacts(t)
	facts.Input.MaxTimeAway = workflows.Duration(time.Second)
	plan, err := workflows.NewPlan(facts)
	require.NoError(t, err)
	require.NotContains(t, strings.Join(plan.Warnings, "\n"), "brake")
	facts.Destination.Health.Braked = true
	plan, err = workflows.NewPlan(facts)
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan.Warnings, "\n"), "--brake=false")
}
