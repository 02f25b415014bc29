package workflows

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Metrics, in base units. None carries the logical cluster: there are too many.
const (
	movesMetric         = "kcp_migrate_moves_total"
	stallsMetric        = "kcp_migrate_stalls_total"
	phaseSecondsMetric  = "kcp_migrate_phase_seconds"
	awaySecondsMetric   = "kcp_migrate_time_away_seconds"
	copiedEntriesMetric = "kcp_migrate_copied_entries_total"
	copiedBytesMetric   = "kcp_migrate_copied_bytes_total"
)

var (
	logicalClusterKey   = temporal.NewSearchAttributeKeyKeyword(LogicalClusterAttribute)
	originShardKey      = temporal.NewSearchAttributeKeyKeyword(OriginShardAttribute)
	destinationShardKey = temporal.NewSearchAttributeKeyKeyword(DestinationShardAttribute)
	phaseKey            = temporal.NewSearchAttributeKeyKeyword(PhaseAttribute)
)

func (m *migration) answerQueries(ctx workflow.Context) error {
	options := workflow.QueryHandlerOptions{Description: "where the move stands"}
	err := workflow.SetQueryHandlerWithOptions(ctx, StatusQuery, func() (Status, error) {
		status := m.status
		status.Advice = m.orders()
		return status, nil
	}, options)
	if err != nil {
		return fmt.Errorf("set handler of query %s: %w", StatusQuery, err)
	}
	return nil
}

// enter begins a phase; lists of moves and metrics go by it.
func (m *migration) enter(ctx workflow.Context, phase Phase) {
	now := workflow.Now(ctx)
	if phase != m.status.Phase {
		m.metrics(ctx, map[string]string{"phase": string(m.status.Phase)}).Timer(phaseSecondsMetric).Record(now.Sub(m.phaseSince))
		m.phaseSince = now
	}
	m.status.Phase = phase
	m.show(ctx)
	var attributes []temporal.SearchAttributeUpdate
	for _, attribute := range []struct {
		key   temporal.SearchAttributeKeyKeyword
		value string
	}{
		{logicalClusterKey, m.status.LogicalCluster},
		{originShardKey, m.status.OriginShard},
		{destinationShardKey, m.status.DestinationShard},
		{phaseKey, string(phase)},
	} {
		if attribute.value != "" {
			attributes = append(attributes, attribute.key.ValueSet(attribute.value))
		}
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, attributes...); err != nil {
		workflow.GetLogger(ctx).Warn("Search attributes were not updated", "phase", phase, "error", err)
	}
}

// advise says in the status what a person can do; an empty text takes it back.
func (m *migration) advise(ctx workflow.Context, format string, args ...any) {
	m.status.Advice = fmt.Sprintf(format, args...)
	m.show(ctx)
}

// show puts the state where the web UI displays it.
func (m *migration) show(ctx workflow.Context) { workflow.SetCurrentDetails(ctx, m.details()) }

// details is a small Markdown table.
func (m *migration) details() string {
	rows := [][2]string{
		{"Move", fmt.Sprintf("%s from %s to %s", m.status.LogicalCluster, known(m.status.OriginShard), m.status.DestinationShard)},
		{"Phase", string(m.status.Phase)},
	}
	if m.status.Step != "" {
		rows = append(rows, [2]string{"Step", m.status.Step})
	}
	rows = append(rows, m.sizes()...)
	rows = append(rows, [2]string{"What you can do", cmp.Or(m.orders(), m.noOrders())})
	var table strings.Builder
	table.WriteString("| | |\n|---|---|\n")
	for _, row := range rows {
		table.WriteString("| " + row[0] + " | " + strings.ReplaceAll(row[1], "|", `\|`) + " |\n")
	}
	return table.String()
}

func known(shard string) string {
	if shard == "" {
		return "a shard yet to be found"
	}
	return shard
}

// sizes are the rows on what moves and how long the tenant is away.
func (m *migration) sizes() [][2]string {
	plan := m.status.Plan
	if plan == nil {
		return nil
	}
	rows := [][2]string{{"Planned", fmt.Sprintf("%d entries, %d bytes", plan.Entries, plan.Bytes)}}
	if m.status.Entries > 0 {
		rows = append(rows, [2]string{"Copied", fmt.Sprintf("%d entries, %d bytes", m.status.Entries, m.status.Bytes)})
	}
	away := fmt.Sprintf("expected %s, at most %s before the commit", plan.ExpectedTimeAway, m.input.MaxTimeAway)
	switch {
	case m.status.FencedAt == nil && m.status.Committed:
		return rows // a recovery does not know
	case m.status.TimeAway > 0:
		away = fmt.Sprintf("%s (expected %s)", time.Duration(m.status.TimeAway).Round(time.Millisecond), plan.ExpectedTimeAway)
	case m.status.Fenced:
		away = fmt.Sprintf("since %s, %s", m.status.FencedAt.Format(time.RFC3339), away)
	}
	return append(rows, [2]string{"Time away", away})
}

// orders says what a person can do now, and is empty where that is nothing.
func (m *migration) orders() string {
	id := m.info.WorkflowExecution.ID
	abort := fmt.Sprintf("`kcp-migrate abort %s`", id)
	switch {
	case m.status.Advice != "":
		return m.status.Advice
	case m.over, m.status.Committed, m.undoing, m.status.Aborting:
		return ""
	case m.status.WaitsForApproval && m.status.Paused:
		return fmt.Sprintf("approve the plan and resume: `kcp-migrate approve %s`, `kcp-migrate resume %s`, or %s", id, id, abort)
	case m.status.WaitsForApproval:
		return fmt.Sprintf("approve the plan: `kcp-migrate approve %s`, or %s", id, abort)
	case m.status.Paused:
		return fmt.Sprintf("`kcp-migrate resume %s`, or %s", id, abort)
	case m.status.Fenced:
		return abort
	}
	return fmt.Sprintf("`kcp-migrate pause %s`, or %s", id, abort)
}

// noOrders says why there is nothing to do.
func (m *migration) noOrders() string {
	switch {
	case m.over:
		return "nothing: the move is over"
	case m.status.Committed:
		return "nothing: the commit has landed, and the move only goes forward"
	}
	return "nothing: the move is being taken back"
}

func (m *migration) metrics(ctx workflow.Context, tags map[string]string) client.MetricsHandler {
	shards := map[string]string{"origin_shard": m.status.OriginShard, "destination_shard": m.status.DestinationShard}
	return workflow.GetMetricsHandler(ctx).WithTags(shards).WithTags(tags)
}

func (m *migration) measureTimeAway(ctx workflow.Context) {
	m.metrics(ctx, nil).Timer(awaySecondsMetric).Record(time.Duration(m.status.TimeAway))
}

// stalled counts that something takes long, for alerts: all other metrics come when a phase or the move is over.
func (m *migration) stalled(ctx workflow.Context) {
	m.metrics(ctx, map[string]string{"phase": string(m.status.Phase)}).Counter(stallsMetric).Inc(1)
}

// count counts the move by its outcome.
func (m *migration) count(ctx workflow.Context, err error) {
	m.metrics(ctx, map[string]string{"outcome": m.outcome(err)}).Counter(movesMetric).Inc(1)
	if err == nil && !m.input.DryRun {
		m.metrics(ctx, nil).Counter(copiedEntriesMetric).Inc(m.status.Entries)
		m.metrics(ctx, nil).Counter(copiedBytesMetric).Inc(m.status.Bytes)
	}
}

func (m *migration) outcome(err error) string {
	switch {
	case err == nil && m.input.DryRun:
		return "planned"
	case err == nil && m.status.Phase == Undone:
		return "undone"
	case err == nil:
		return "completed"
	case m.undoErr != nil:
		return "undo_incomplete"
	case len(m.status.Undone) > 0:
		return "undone"
	}
	return "refused"
}
