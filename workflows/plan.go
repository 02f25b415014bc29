package workflows

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// What the estimate of the time away rests on, measured on two shared cores (docs/kcp-findings.md): a prototype took
// 0.16 s for 115 entries and 0.45 s for 5,010; half of the 44,000 entries a second that went through one stream is
// left to verification.
const (
	fixedTimeAway    = 300 * time.Millisecond
	entriesPerSecond = 20_000
	bytesPerSecond   = 40_000_000
)

const (
	// revisionMargin is how far the destination's revision is lifted above the origin's: the origin's other tenants
	// go on writing until the fence stands.
	revisionMargin = 1_000
	// minimumFence lets the watchers of a cluster whose revision gap is too large to lift reconnect while the fence
	// stands, where the 403 makes them list anew: client-go's back-off begins at 0.8 s.
	minimumFence = 2 * time.Second
	// spaceFactor is what a moved byte takes of the destination's quota, until its next compaction and defragmentation,
	// with one repair of everything.
	spaceFactor = 2.5
)

// Facts is what preflight found out.
type Facts struct {
	Input       Input
	Location    activities.Location
	Origin      activities.OriginReport
	Destination activities.DestinationReport
}

// NewPlan decides from the facts alone what a move would do, or refuses it with a typed error.
func NewPlan(facts Facts) (Plan, error) {
	facts.Input = facts.Input.withDefaults()
	plan := Plan{
		LogicalCluster:   facts.Location.LogicalCluster,
		Path:             facts.Location.Path,
		OriginShard:      facts.Location.Shard,
		DestinationShard: facts.Input.DestinationShard,
		Entries:          facts.Origin.Entries,
		Bytes:            facts.Origin.Bytes,
		LeasedEntries:    facts.Origin.LeasedEntries,
		Families:         plannedFamilies(facts.Origin.Digest),
		BoundCRDs:        facts.Destination.MissingCRDs,
		Leftovers:        facts.Destination.Leftovers,
		NotMoved:         facts.Origin.Contents.ChildWorkspaces,

		RenewsCachedCopies: facts.Origin.ReachesCache,
	}
	plan.RevisionLift, plan.MinimumFence = bridge(facts)
	plan.ExpectedTimeAway = max(estimate(plan.Entries, plan.Bytes), limited(facts, plan), plan.MinimumFence)
	plan.Warnings = warnings(facts, plan)
	for _, refuse := range []func(Facts, Plan) error{
		refuseOldWorker, refuseOldKcp, refuseOlderDestination, refuseTokenLoss, refuseLeftovers, refuseFullStore, refuseLongAbsence,
	} {
		if err := refuse(facts, plan); err != nil {
			return Plan{}, err
		}
	}
	return plan, nil
}

// asksMoreThan reports whether the plan warns of something, or would delete something, that another one did not. Figures in
// warnings go up and down by themselves.
func (p Plan) asksMoreThan(approved Plan) bool {
	return !contains(kinds(approved.Warnings), kinds(p.Warnings)) || !contains(approved.Leftovers, p.Leftovers)
}

func kinds(warnings []string) []string {
	kinds := make([]string, len(warnings))
	for i, warning := range warnings {
		kinds[i] = figures.ReplaceAllString(warning, "#")
	}
	return kinds
}

var figures = regexp.MustCompile(`\d[\d.,a-zµ]*`)

func contains(known, found []string) bool {
	return !slices.ContainsFunc(found, func(one string) bool { return !slices.Contains(known, one) })
}

func plannedFamilies(digest activities.Digest) []PlannedFamily {
	families := make([]PlannedFamily, 0, len(digest.Families))
	for _, family := range digest.Families {
		families = append(families, PlannedFamily{Family: family.Family.String(), Entries: family.Entries, Bytes: family.Bytes})
	}
	return families
}

// bridge closes the gap between the shards' revisions: by a lift where the limit allows it, else by a longer fence.
func bridge(facts Facts) (lift int64, fence Duration) {
	gap := facts.Origin.Health.Revision + revisionMargin - facts.Destination.Health.Revision
	if gap <= 0 {
		return 0, 0
	}
	if gap > facts.Input.MaxRevisionLift {
		return 0, Duration(minimumFence)
	}
	return gap, 0
}

func estimate(entries, bytes int64) Duration {
	seconds := float64(entries)/entriesPerSecond + float64(bytes)/bytesPerSecond
	return Duration(fixedTimeAway + time.Duration(seconds*float64(time.Second)).Round(time.Millisecond))
}

// refuseOldWorker is for workers that would refuse each other while the tenant is away.
func refuseOldWorker(facts Facts, plan Plan) error {
	serves, asked := facts.Origin.Protocols, facts.Destination.Protocols
	var tooOld string
	switch {
	case serves.TooOldFor(asked.Newest):
		tooOld = plan.OriginShard
	case serves.TooNewFor(asked.Newest):
		tooOld = plan.DestinationShard
	default:
		return nil
	}
	return activities.Refuse(activities.WorkerTooOld, "shard %s's worker serves %s, that of shard %s knows %s; upgrade the workers of shard %s",
		plan.OriginShard, serves, plan.DestinationShard, asked, tooOld)
}

// brakedFactor is by how much a brake may stretch the time away at most, etcd itself being fast enough.
const brakedFactor = 4

// limited is what the copy and one verification take at least where an operator has limited a shard's workers.
func limited(facts Facts, plan Plan) Duration {
	seconds := 0.0
	for _, health := range []activities.StoreHealth{facts.Origin.Health, facts.Destination.Health} {
		for _, limit := range []struct {
			amount    int64
			perSecond int
		}{{plan.Entries, health.MaxEntriesPerSecond}, {plan.Bytes, health.MaxBytesPerSecond}} {
			if limit.perSecond > 0 {
				seconds = max(seconds, 2*float64(limit.amount)/float64(limit.perSecond))
			}
		}
	}
	return Duration(fixedTimeAway + time.Duration(seconds*float64(time.Second)).Round(time.Millisecond))
}

func refuseOldKcp(facts Facts, plan Plan) error {
	for _, shard := range []struct {
		name    string
		version activities.Version
	}{
		{plan.OriginShard, facts.Origin.Version},
		{plan.DestinationShard, facts.Destination.Version},
	} {
		if !shard.version.FencesByAnnotation {
			return activities.Refuse(activities.KcpTooOld,
				"shard %s runs kcp %s, which has no phase Inactive for logical clusters; upgrade it to 0.32 or later", shard.name, told(shard.version.Kcp))
		}
	}
	return nil
}

func told(kcpVersion string) string {
	if kcpVersion == "" {
		return "of an unknown version"
	}
	return kcpVersion
}

func refuseOlderDestination(facts Facts, plan Plan) error {
	if facts.Input.ForceDestination || !olderDestination(facts) {
		return nil
	}
	return activities.Refuse(activities.DestinationOlder,
		"shard %s runs kcp %s, older than %s on shard %s, and may not understand what it is given; upgrade it, or go on with forceDestination",
		plan.DestinationShard, facts.Destination.Version.Kcp, facts.Origin.Version.Kcp, plan.OriginShard)
}

// olderDestination compares the numbers alone: what git describe appends says nothing about the order.
func olderDestination(facts Facts) bool {
	origin, originErr := version.ParseGeneric(facts.Origin.Version.Kcp)
	destination, destinationErr := version.ParseGeneric(facts.Destination.Version.Kcp)
	return originErr == nil && destinationErr == nil && destination.LessThan(origin)
}

// losesTokens: every service-account token of the tenant dies where the shards' keys or issuers differ (kcp #799).
func losesTokens(facts Facts) bool {
	return facts.Origin.Contents.ServiceAccounts > 0 && facts.Origin.SigningKeys != facts.Destination.SigningKeys
}

func refuseTokenLoss(facts Facts, plan Plan) error {
	if facts.Input.AcceptTokenLoss || !losesTokens(facts) {
		return nil
	}
	return activities.Refuse(activities.TokenLoss,
		"shards %s and %s check service-account tokens with different keys or issuers: the tokens of %d ServiceAccounts would die; give both shards the same keys, or go on with acceptTokenLoss",
		plan.OriginShard, plan.DestinationShard, facts.Origin.Contents.ServiceAccounts)
}

func refuseLeftovers(facts Facts, plan Plan) error {
	leftovers := facts.Destination.Leftovers
	switch {
	case facts.Destination.HasLogicalCluster:
		return activities.Refuse(activities.DestinationNotEmpty,
			"shard %s has a LogicalCluster %s of its own; find out which of the two is the tenant's before anything is moved: %s",
			plan.DestinationShard, plan.LogicalCluster, strings.Join(leftovers, ", "))
	case len(leftovers) > 0 && !facts.Input.DiscardLeftovers:
		return activities.Refuse(activities.DestinationNotEmpty,
			"shard %s holds keys of %s, but no LogicalCluster; delete them, or go on with discardLeftovers: %s",
			plan.DestinationShard, plan.LogicalCluster, strings.Join(leftovers, ", "))
	}
	return nil
}

func refuseFullStore(facts Facts, plan Plan) error {
	for _, shard := range []struct {
		name   string
		alarms []string
	}{
		{plan.OriginShard, facts.Origin.Health.Alarms},
		{plan.DestinationShard, facts.Destination.Health.Alarms},
	} {
		if len(shard.alarms) > 0 {
			return activities.Refuse(activities.NoSpace, "etcd of shard %s has raised %s; mend that and disarm it first", shard.name, strings.Join(shard.alarms, ", "))
		}
	}
	health, needed := facts.Destination.Health, int64(spaceFactor*float64(plan.Bytes))
	if health.QuotaBytes > 0 && health.DatabaseBytes+needed > health.QuotaBytes {
		return activities.Refuse(activities.NoSpace,
			"etcd of shard %s holds %d bytes of its quota of %d, and the move may need %d more; compact and defragment it or raise the quota",
			plan.DestinationShard, health.DatabaseBytes, health.QuotaBytes, needed)
	}
	return nil
}

func refuseLongAbsence(facts Facts, plan Plan) error {
	if plan.ExpectedTimeAway <= facts.Input.MaxTimeAway {
		return nil
	}
	return activities.Refuse(activities.AwayTooLong,
		"the tenant would be away for about %s, longer than maxTimeAway %s; raise maxTimeAway%s",
		plan.ExpectedTimeAway, facts.Input.MaxTimeAway, orLimits(facts, plan))
}

// orLimits names what else may be raised, where an operator's limits count more than etcd's own speed.
func orLimits(facts Facts, plan Plan) string {
	if limited(facts, plan) <= estimate(plan.Entries, plan.Bytes) {
		return ""
	}
	return ", or --max-entries-per-second and --max-bytes-per-second of both shards' workers"
}

func warnings(facts Facts, plan Plan) []string {
	warnings := []string{
		fmt.Sprintf("clients that watch all logical clusters of shard %s see the tenant's objects deleted there", plan.OriginShard),
	}
	contents := facts.Origin.Contents
	if contents.TokenSecrets > 0 {
		warnings = append(warnings, fmt.Sprintf("ca.crt in %d token Secrets changes to the destination's", contents.TokenSecrets))
	}
	if len(contents.APIExports) > 0 && !plan.RenewsCachedCopies {
		warnings = append(warnings, fmt.Sprintf(
			"it holds APIExports (%s), and the workers of shard %s have no access to kcp's cache server, which keeps copies of them: later changes may not reach consumers, and the origin's virtual workspace may refuse (docs/kcp-findings.md, Trap 5); give the workers --cache-kubeconfig first",
			strings.Join(contents.APIExports, ", "), plan.OriginShard))
	}
	if losesTokens(facts) {
		warnings = append(warnings, fmt.Sprintf("the tokens of %d ServiceAccounts die: the shards check them with different keys", contents.ServiceAccounts))
	}
	stretched := brakedFactor * plan.ExpectedTimeAway
	if (facts.Origin.Health.Braked || facts.Destination.Health.Braked) && stretched > facts.Input.MaxTimeAway {
		warnings = append(warnings, fmt.Sprintf(
			"where the move makes others wait for etcd, the workers' brake may stretch the time away to about %s, and maxTimeAway is %s: raise it, or start the workers with --brake=false",
			stretched, facts.Input.MaxTimeAway))
	}
	if bared := bared(facts); len(bared) > 0 {
		warnings = append(warnings, fmt.Sprintf("shard %s encrypts these at rest and shard %s does not: %s",
			plan.OriginShard, plan.DestinationShard, strings.Join(bared, ", ")))
	}
	if olderDestination(facts) {
		warnings = append(warnings, fmt.Sprintf("kcp is older on shard %s than on shard %s", plan.DestinationShard, plan.OriginShard))
	}
	if plan.MinimumFence > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"the destination's revision is %d below the origin's, more than maxRevisionLift: the fence is held for at least %s; a raw watch that reconnects later with its old resourceVersion stays deaf until the destination catches up (kcp #4250)",
			facts.Origin.Health.Revision-facts.Destination.Health.Revision, plan.MinimumFence))
	}
	return warnings
}

// bared are the families that the move takes out of encryption at rest.
func bared(facts Facts) []string {
	var bared []string
	for _, family := range facts.Origin.Encrypted {
		if !slices.Contains(facts.Destination.Encrypted, family) {
			bared = append(bared, family.String())
		}
	}
	return bared
}
