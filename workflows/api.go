package workflows

import (
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// Names on the wire: all that a client of Temporal needs to start, follow and steer a move.
const (
	// MigrateLogicalClusterName is the workflow type.
	MigrateLogicalClusterName = "MigrateLogicalCluster"
	// RecoverLogicalClusterName is the workflow type that ends a move whose own workflow is gone. It answers the status
	// query like a move, and has a Result like one.
	RecoverLogicalClusterName = "RecoverLogicalCluster"
	// TaskQueue is where moves run; any shard's worker takes them.
	TaskQueue = "kcp-migrate"
	// StatusQuery answers with a Status.
	StatusQuery = "status"
	// PauseUpdate holds the move before the fence.
	PauseUpdate = "pause"
	// ResumeUpdate ends a pause.
	ResumeUpdate = "resume"
	// ApproveUpdate opens the gate of a move started with requireApproval.
	ApproveUpdate = "approve"
	// AbortUpdate takes the move back; it takes an AbortRequest.
	AbortUpdate = "abort"
)

// Search attributes, all of type Keyword; they change at phase changes only.
const (
	// LogicalClusterAttribute holds the logical cluster's name.
	LogicalClusterAttribute = "KcpLogicalCluster"
	// OriginShardAttribute holds the shard that the logical cluster leaves.
	OriginShardAttribute = "KcpOriginShard"
	// DestinationShardAttribute holds the shard that it moves to.
	DestinationShardAttribute = "KcpDestinationShard"
	// PhaseAttribute holds the Phase.
	PhaseAttribute = "KcpMigrationPhase"
)

// WorkflowID is the usual workflow ID of a move; any other works too.
func WorkflowID(logicalCluster string) string { return "migrate-" + logicalCluster }

// RecoveryWorkflowID is the usual workflow ID of a recovery.
func RecoveryWorkflowID(logicalCluster string) string { return "recover-" + logicalCluster }

// ShardTaskQueue is the queue that the workers beside a shard poll.
func ShardTaskQueue(shard string) string { return "kcp-migrate.shard." + shard }

// Input starts a move. Only the first two fields are needed.
type Input struct {
	// LogicalCluster is a path like root:org:ws or a logical cluster's name.
	LogicalCluster string `json:"logicalCluster"`
	// DestinationShard is the name of a Shard object.
	DestinationShard string `json:"destinationShard"`
	// DryRun stops after preflight and returns the plan.
	DryRun bool `json:"dryRun,omitempty"`
	// RequireApproval waits for the approve Update before the tenant is fenced.
	RequireApproval bool `json:"requireApproval,omitempty"`
	// MaxTimeAway undoes the move where no commit has landed so long after the fence, e.g. "60s" (the default); 1h at most.
	MaxTimeAway Duration `json:"maxTimeAway,omitempty"`
	// DiscardLeftovers deletes keys of the logical cluster that the destination holds, only where it has no LogicalCluster of it.
	DiscardLeftovers bool `json:"discardLeftovers,omitempty"`
	// AcceptTokenLoss goes on although the shards' service-account keys differ.
	AcceptTokenLoss bool `json:"acceptTokenLoss,omitempty"`
	// ForceDestination goes on although the destination is not Ready or runs an older kcp.
	ForceDestination bool `json:"forceDestination,omitempty"`
	// MaxRevisionLift bounds by how many revisions the destination's etcd may be lifted; 0 means 10 million.
	MaxRevisionLift int64 `json:"maxRevisionLift,omitempty"`

	// problem is what was wrong with the JSON; see UnmarshalJSON.
	problem error
}

// Recovery is what a recovery is to do.
type Recovery string

// What a recovery may be told to do; nothing means only to look.
const (
	// Resume finishes a move that is committed. One that is not is taken back and then begins anew.
	Resume Recovery = "resume"
	// TakeBack gives the tenant back to the origin.
	TakeBack Recovery = "undo"
)

// RecoverInput starts a recovery. Only the first field is needed.
type RecoverInput struct {
	// LogicalCluster is a path like root:org:ws or, where no front-proxy knows it, a logical cluster's name.
	LogicalCluster string `json:"logicalCluster"`
	// Action is what to do; without it nothing is changed, and the result says where the move stands.
	Action Recovery `json:"action,omitempty"`
	// OriginShard and DestinationShard are needed together, where no shard's claim tells them.
	OriginShard      string `json:"originShard,omitempty"`
	DestinationShard string `json:"destinationShard,omitempty"`
	// WorkflowIsLost is a person's word that the workflow that a claim names, which Temporal does not know, runs nowhere.
	WorkflowIsLost bool `json:"workflowIsLost,omitempty"`
	// DestinationIsLost is a person's word that the destination never comes back: the undo then opens the origin without it.
	DestinationIsLost bool `json:"destinationIsLost,omitempty"`
	// Move has the options of the move that begins anew; its logical cluster and destination are those of the old one.
	Move Input `json:"move,omitzero"`

	// problem is what was wrong with the JSON; see UnmarshalJSON.
	problem error
}

// Standing is where a move stands whose workflow may be gone, from both shards' etcds alone.
type Standing struct {
	Origin      activities.Standing `json:"origin"`
	Destination activities.Standing `json:"destination"`
	// Route is the shard that the front-proxies lead to, empty where they know none.
	Route string `json:"route,omitempty"`
	// Workflows are those that the claims name.
	Workflows []WorkflowStanding `json:"workflows,omitempty"`
	// Committed is whether the commit has landed, which the destination's claim alone decides.
	Committed bool `json:"committed"`
	// Advice says what a person can do.
	Advice string `json:"advice,omitempty"`
}

// WorkflowStanding is what Temporal says of a workflow that a claim names.
type WorkflowStanding struct {
	WorkflowID string `json:"workflowID"`
	RunID      string `json:"runID"`
	activities.RunState
}

// Phase is where a move stands, in kcp's own words.
type Phase string

// The phases in their order; Failed is reached from any before OriginCleanup, after the undo.
const (
	Preparing           Phase = "Preparing"
	Migrating           Phase = "Migrating"
	OriginCleanup       Phase = "OriginCleanup"
	DestinationFinalize Phase = "DestinationFinalize"
	Completed           Phase = "Completed"
	Failed              Phase = "Failed"
	// Undone is the end of a recovery that took the move back as it was told to.
	Undone Phase = "Undone"
)

// Result is what a finished move returns, and what a failed one carries in its failure's details.
type Result struct {
	LogicalCluster   string `json:"logicalCluster"`
	Path             string `json:"path,omitempty"`
	OriginShard      string `json:"originShard,omitempty"`
	DestinationShard string `json:"destinationShard"`
	Phase            Phase  `json:"phase"`
	// Plan is always there once preflight is over; a dry run has nothing else.
	Plan   *Plan `json:"plan,omitempty"`
	DryRun bool  `json:"dryRun,omitempty"`
	// Standing is what a recovery found.
	Standing *Standing `json:"standing,omitempty"`
	Entries  int64     `json:"entries"`
	// Bytes counts plaintext values.
	Bytes int64 `json:"bytes"`
	// SHA256 is the digest that both shards agreed on.
	SHA256 string `json:"sha256,omitempty"`
	// TimeAway is from the fence to the destination's serving, as the workflow saw it, an upper bound.
	TimeAway Duration `json:"timeAway"`
	Steps    []Step   `json:"steps,omitempty"`
	// Stragglers are writes that reached the origin after its entries were verified: 200 at most, first of all those that were
	// not carried.
	Stragglers []activities.Straggler `json:"stragglers,omitempty"`
	// StragglerCounts counts them all.
	StragglerCounts StragglerCounts `json:"stragglerCounts,omitzero"`
	// Warnings are for a person to read, OwnerGone among them.
	Warnings []string `json:"warnings,omitempty"`
	// Undone says step by step what an undo took back.
	Undone []string `json:"undone,omitempty"`
	// NotUndone says what it could not take back, and why. A person has to: docs/operations.md.
	NotUndone []string `json:"notUndone,omitempty"`
}

// StragglerCounts counts late writes by what became of them.
type StragglerCounts struct {
	// Carried are at the destination now.
	Carried int `json:"carried,omitempty"`
	// NotCarried are for a person to look at, deletions among them.
	NotCarried int `json:"notCarried,omitempty"`
	// Discarded were kcp's own controllers', once nobody else was let in.
	Discarded int `json:"discarded,omitempty"`
}

// Step is one finished step.
type Step struct {
	Name string   `json:"name"`
	Took Duration `json:"took"`
}

// Status answers the status Query.
type Status struct {
	Result
	// Step is the one at work.
	Step      string    `json:"step"`
	StartedAt time.Time `json:"startedAt"`
	// FencedAt is set while and after the tenant was away.
	FencedAt *time.Time `json:"fencedAt,omitempty"`
	// Fenced is whether the tenant is away now.
	Fenced bool `json:"fenced"`
	Paused bool `json:"paused,omitempty"`
	// WaitsForApproval: an approve Update lets it go on.
	WaitsForApproval bool `json:"waitsForApproval,omitempty"`
	// Committed: the point of no return has passed.
	Committed bool `json:"committed,omitempty"`
	Aborting  bool `json:"aborting,omitempty"`
	// Advice says what a person can do, when there is anything.
	Advice string `json:"advice,omitempty"`
}

// AbortRequest is the abort Update's argument; it may be left out.
type AbortRequest struct {
	Reason string `json:"reason,omitempty"`
}

// Plan is what a move would do, made by preflight.
type Plan struct {
	LogicalCluster   string `json:"logicalCluster"`
	Path             string `json:"path"`
	OriginShard      string `json:"originShard"`
	DestinationShard string `json:"destinationShard"`
	Entries          int64  `json:"entries"`
	Bytes            int64  `json:"bytes"`
	LeasedEntries    int64  `json:"leasedEntries"`
	// Families is the same, family by family, leased entries left out.
	Families []PlannedFamily `json:"families"`
	// BoundCRDs are the schema UIDs whose CRD will be created at the destination.
	BoundCRDs []string `json:"boundCRDs,omitempty"`
	// RevisionLift is by how many revisions the destination's etcd will be lifted.
	RevisionLift int64 `json:"revisionLift,omitempty"`
	// MinimumFence holds the fence so long where the gap was too large to lift, so that watchers reconnect into it.
	MinimumFence Duration `json:"minimumFence,omitempty"`
	// Leftovers are keys at the destination that will be deleted first.
	Leftovers []string `json:"leftovers,omitempty"`
	// NotMoved names what stays: child workspaces.
	NotMoved []string `json:"notMoved,omitempty"`
	// RenewsCachedCopies: copies in kcp's cache server will be put right (Trap 5 of docs/kcp-findings.md).
	RenewsCachedCopies bool `json:"renewsCachedCopies,omitempty"`
	// ExpectedTimeAway is an estimate from the tenant's size.
	ExpectedTimeAway Duration `json:"expectedTimeAway"`
	Warnings         []string `json:"warnings,omitempty"`
}

// PlannedFamily is one family's share of the plan.
type PlannedFamily struct {
	Family  string `json:"family"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
}
