package activities

import (
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// What travels through Temporal, and so stands in histories: a change of these structs is a change of the wire.

// ResolveInput asks where a logical cluster is and whether it may go to a shard.
type ResolveInput struct {
	LogicalCluster   string `json:"logicalCluster"`
	DestinationShard string `json:"destinationShard"`
	ForceDestination bool   `json:"forceDestination,omitempty"`
}

// InspectInput names the logical cluster to inspect on a shard.
type InspectInput struct {
	LogicalCluster string `json:"logicalCluster"`
	// RunID is the asking move's, whose own claim is no hindrance.
	RunID string `json:"runID"`
	// SchemaUIDs are the bound schemas whose CRDs a destination must have.
	SchemaUIDs []string `json:"schemaUIDs,omitempty"`
	// Families are what the destination will have to encrypt.
	Families []keyspace.Family `json:"families,omitempty"`
}

// OriginReport is what the origin worker found.
type OriginReport struct {
	// TransferAddress is where workers of this shard serve entries.
	TransferAddress string `json:"transferAddress"`
	// Protocols are what the worker serves entries in.
	Protocols   Protocols   `json:"protocols"`
	Version     Version     `json:"version"`
	SigningKeys string      `json:"signingKeys"`
	Health      StoreHealth `json:"health"`
	Contents    Contents    `json:"contents"`
	// Digest is of the entries as they were; the tenant goes on writing.
	Digest        Digest `json:"digest"`
	Entries       int64  `json:"entries"`
	Bytes         int64  `json:"bytes"`
	LeasedEntries int64  `json:"leasedEntries"`
	// ReachesCache is whether the worker has access to kcp's cache server.
	ReachesCache bool `json:"reachesCache,omitempty"`
	// Encrypted are the families whose values the shard encrypts at rest.
	Encrypted []keyspace.Family `json:"encrypted,omitempty"`
}

// DestinationReport is what the destination worker found.
type DestinationReport struct {
	// Protocols have what the worker asks for entries in as their newest.
	Protocols   Protocols   `json:"protocols"`
	Version     Version     `json:"version"`
	SigningKeys string      `json:"signingKeys"`
	Health      StoreHealth `json:"health"`
	// Leftovers are keys of that logical cluster, 20 at most.
	Leftovers []string `json:"leftovers,omitempty"`
	// HasLogicalCluster is whether a LogicalCluster object is among them.
	HasLogicalCluster bool `json:"hasLogicalCluster,omitempty"`
	// MissingCRDs are the schema UIDs whose bound CRD is to be installed.
	MissingCRDs []string `json:"missingCRDs,omitempty"`
	// Encrypted are those of the asked families whose values the shard encrypts at rest.
	Encrypted []keyspace.Family `json:"encrypted,omitempty"`
}

// ClaimInput asks for the claim of one shard's etcd.
type ClaimInput struct {
	Guard Guard     `json:"guard"`
	Info  ClaimInfo `json:"info"`
}

// GuardInput is for activities that need to know no more than whose turn it is.
type GuardInput struct {
	Guard Guard `json:"guard"`
}

// WakeResult tells which cut the shard's informers come back from.
type WakeResult struct {
	// Cut is the revision of the latest one that was noted.
	Cut int64 `json:"cut"`
}

// InformersResult tells which cut the first of the shard's informers have come back from.
type InformersResult struct {
	// Cut is the revision of the latest one that was noted.
	Cut int64 `json:"cut"`
	// OthersSince is when the first of the other moves that may have cut them off was claimed, zero where there is none.
	OthersSince time.Time `json:"othersSince,omitzero"`
}

// RaiseInput replaces the guard's token.
type RaiseInput struct {
	Guard Guard `json:"guard"`
	To    Token `json:"to"`
}

// SealResult tells whether the commit had landed before it could be sealed off.
type SealResult struct {
	Committed bool `json:"committed"`
}

// OriginRef is how a destination worker reaches the origin and proves itself there.
type OriginRef struct {
	Address string `json:"address"`
	Guard   Guard  `json:"guard"`
}

// InstallInput names the bound CRDs that the destination lacks.
type InstallInput struct {
	Guard      Guard     `json:"guard"`
	Origin     OriginRef `json:"origin"`
	SchemaUIDs []string  `json:"schemaUIDs"`
}

// InstallResult names those that were created.
type InstallResult struct {
	Created []string `json:"created,omitempty"`
}

// LiftInput asks for a revision of at least To.
type LiftInput struct {
	Guard Guard `json:"guard"`
	To    int64 `json:"to"`
}

// LiftResult is the revision reached.
type LiftResult struct {
	Revision int64 `json:"revision"`
}

// FenceResult is when the origin's fence stood.
type FenceResult struct {
	// FencedAt is when the fence was written: the tenant is away from here on.
	FencedAt time.Time `json:"fencedAt"`
	// Revision is the origin's after every watch was cut.
	Revision int64 `json:"revision"`
	// Nudges counts how often an API server had to be told again.
	Nudges int `json:"nudges,omitempty"`
}

// FenceDestinationInput has the destination's LogicalCluster made from the origin's.
type FenceDestinationInput struct {
	Guard  Guard     `json:"guard"`
	Origin OriginRef `json:"origin"`
}

// CopyInput has every other entry pulled at a pinned revision of the origin.
type CopyInput struct {
	Guard    Guard     `json:"guard"`
	Origin   OriginRef `json:"origin"`
	Revision int64     `json:"revision"`
}

// CopyProgress is the heartbeat of a copy, and where its next attempt resumes.
type CopyProgress struct {
	Revision int64 `json:"revision"`
	Written
	// Slowed says why the copy is slowed down, where it is.
	Slowed string `json:"slowed,omitempty"`
}

// CopyResult counts what was written.
type CopyResult struct {
	Revision int64 `json:"revision"`
	Entries  int64 `json:"entries"`
	Bytes    int64 `json:"bytes"`
}

// VerifyInput asks for one round: raise the token, digest both sides, repair what differs.
type VerifyInput struct {
	Guard   Guard     `json:"guard"`
	RaiseTo Token     `json:"raiseTo"`
	Origin  OriginRef `json:"origin"`
}

// VerifyResult is one round's outcome.
type VerifyResult struct {
	// Match is that both digests were equal; nothing was repaired then.
	Match bool `json:"match"`
	// OriginRevision is the verified one.
	OriginRevision int64  `json:"originRevision"`
	Entries        int64  `json:"entries"`
	Bytes          int64  `json:"bytes"`
	LeasedEntries  int64  `json:"leasedEntries"`
	SHA256         string `json:"sha256"`
	// RepairedPuts and RepairedDeletes count what was brought into line.
	RepairedPuts    int `json:"repairedPuts,omitempty"`
	RepairedDeletes int `json:"repairedDeletes,omitempty"`
	// Differing names at most 20 of the differing entries.
	Differing []Ref `json:"differing,omitempty"`
}

// CommitInput opens the destination's LogicalCluster.
type CommitInput struct {
	Guard   Guard     `json:"guard"`
	RaiseTo Token     `json:"raiseTo"`
	Origin  OriginRef `json:"origin"`
	// TopUp lifts the destination's revision where the origin's has passed it since the lift before the fence.
	TopUp bool `json:"topUp"`
	// Landing is left in the claim, for whoever has to go on without this workflow.
	Landing Landing `json:"landing"`
}

// CommitResult is the landing.
type CommitResult struct {
	Revision int64 `json:"revision"`
}

// DeleteInput deletes at the origin what has not changed since Revision.
type DeleteInput struct {
	Guard    Guard `json:"guard"`
	Revision int64 `json:"revision"`
	// Accounted is what an earlier sweep gave: stragglers up to there are not told again. 0 in the first.
	Accounted int64 `json:"accounted,omitempty"`
	// Cut is the latest one that all informers have come back from, or WhicheverCut.
	Cut int64 `json:"cut,omitempty"`
}

// DeleteResult tells what was deleted and what had changed.
type DeleteResult struct {
	Deleted int64 `json:"deleted"`
	// Revision is the origin's as the sweep began.
	Revision int64 `json:"revision"`
	// Stragglers are some 500 at most, the oldest first.
	Stragglers []Straggler `json:"stragglers,omitempty"`
	// More counts the younger stragglers, which the next sweep tells.
	More int `json:"more,omitempty"`
	// Accounted is the origin's revision up to which all stragglers have been told by now.
	Accounted int64 `json:"accounted"`
	// Gone are entries that others have deleted, 200 at most; MoreGone counts the rest. Only the first sweep tells them.
	Gone     []Straggler `json:"gone,omitempty"`
	MoreGone int         `json:"moreGone,omitempty"`
	// DeletionsUnknown: the first sweep cannot tell them, because etcd has compacted its history since Revision.
	DeletionsUnknown bool `json:"deletionsUnknown,omitempty"`
	// CutOff is a later cut than the one that was waited out. It has ended the deletion, and nothing was looked for.
	CutOff int64 `json:"cutOff,omitempty"`
}

// DropResult is the revision of the origin by which its LogicalCluster was gone.
type DropResult struct {
	Revision int64 `json:"revision"`
}

// CarryInput has stragglers brought to the destination where nobody has written there since the commit.
type CarryInput struct {
	Guard  Guard     `json:"guard"`
	Origin OriginRef `json:"origin"`
	// VerifiedRevision is the origin's up to which both sides were equal: what was created after it is new.
	VerifiedRevision int64 `json:"verifiedRevision"`
	// CommitRevision is the destination's: what is no newer there is what the move wrote.
	CommitRevision int64 `json:"commitRevision"`
	// DroppedAt is the origin's once its LogicalCluster was gone. A shard denies everyone but its own controllers a
	// logical cluster that it has no LogicalCluster of; what they write there concerns nobody.
	DroppedAt  int64       `json:"droppedAt"`
	Stragglers []Straggler `json:"stragglers"`
}

// CarryResult is the stragglers with their fate.
type CarryResult struct {
	Stragglers []Straggler `json:"stragglers"`
}

// DropCarriedInput names stragglers with their fate.
type DropCarriedInput struct {
	Guard      Guard       `json:"guard"`
	Stragglers []Straggler `json:"stragglers"`
}

// ServeInput asks until every API server of the destination serves the logical cluster.
type ServeInput struct {
	Guard Guard `json:"guard"`
	// Resources are probed too.
	Resources []BoundResource `json:"resources,omitempty"`
}

// ServeResult is when it did.
type ServeResult struct {
	ServingAt time.Time `json:"servingAt"`
	Nudges    int       `json:"nudges,omitempty"`
}

// RouteInput asks until every front-proxy routes the logical cluster to the shard, or one has answered wrongly for so long.
type RouteInput struct {
	LogicalCluster string `json:"logicalCluster"`
	// Path is asked for too: front-proxies know it by an index of its own. Empty where its Workspace is gone.
	Path  string `json:"path,omitempty"`
	Shard string `json:"shard"`
	// Patience is in nanoseconds.
	Patience time.Duration `json:"patience"`
}

// RouteResult tells what a front-proxy answers that has lost the route; empty where all have it.
type RouteResult struct {
	Lost string `json:"lost,omitempty"`
}

// OwnerInput asks until the owner Workspace names the shard.
type OwnerInput struct {
	Owner OwnerRef `json:"owner"`
	Shard string   `json:"shard"`
}

// OwnerResult tells whether the owner Workspace is gone.
type OwnerResult struct {
	Gone bool `json:"gone,omitempty"`
}

// ReleaseResult names the API servers that have not dropped a context however often they were made to, empty where all have.
type ReleaseResult struct {
	Stuck string `json:"stuck,omitempty"`
}

// TouchResult tells whether the LogicalCluster is gone.
type TouchResult struct {
	Gone bool `json:"gone,omitempty"`
}

// ResolveResult is where the logical cluster is.
type ResolveResult struct {
	Location
}

// RenewInput names the shard whose copies in the cache server stay.
type RenewInput struct {
	Guard            Guard  `json:"guard"`
	DestinationShard string `json:"destinationShard"`
}

// RenewResult counts copies in the cache server.
type RenewResult struct {
	// Deleted are the origin's, those that it made anew included.
	Deleted int `json:"deleted"`
	// Touched are the destination's.
	Touched int `json:"touched"`
}

// FindInput asks for everything that finding a logical cluster's claims may take.
type FindInput struct {
	LogicalCluster string `json:"logicalCluster"`
}

// FindResult is where to look.
type FindResult struct {
	// Location has the name alone where no front-proxy knows the logical cluster.
	Location
	// Shards are all shards' names.
	Shards []string `json:"shards"`
}

// WorkflowInput names a workflow that a claim speaks of.
type WorkflowInput struct {
	WorkflowID string `json:"workflowID"`
}

// SurveyInput names the logical cluster to look for.
type SurveyInput struct {
	LogicalCluster string `json:"logicalCluster"`
}

// Standing is what one shard holds of a logical cluster and of a move of it, read from its etcd alone.
type Standing struct {
	Shard string `json:"shard"`
	// Unreachable says why nothing more is known of the shard.
	Unreachable string `json:"unreachable,omitempty"`
	// Claim is there where a run holds one.
	Claim *Claim `json:"claim,omitempty"`
	// HasLogicalCluster is whether there is a LogicalCluster object; the next four are of it.
	HasLogicalCluster   bool   `json:"hasLogicalCluster,omitempty"`
	LogicalClusterPhase string `json:"logicalClusterPhase,omitempty"`
	// Inactive is whether the annotation that keeps everyone out is set, by whomever.
	Inactive bool `json:"inactive,omitempty"`
	// Stamp is the token of the move that fenced the object or wrote it fenced.
	Stamp Token     `json:"stamp,omitempty"`
	Owner *OwnerRef `json:"owner,omitempty"`
	Path  string    `json:"path,omitempty"`
	// Keys counts the keys of the logical cluster, its LogicalCluster included, up to KeysCounted.
	Keys int `json:"keys"`
	// TransferAddress is where workers of the shard serve entries.
	TransferAddress string `json:"transferAddress,omitempty"`
	// ReachesCache is whether the worker has access to kcp's cache server.
	ReachesCache bool `json:"reachesCache,omitempty"`
}

// TakeInput asks for a claim that another run has left.
type TakeInput struct {
	Guard Guard `json:"guard"`
	// From is the run that held it when it was looked at, empty for nobody.
	From string    `json:"from,omitempty"`
	Info ClaimInfo `json:"info"`
	// Committed is that the destination serves the tenant. The origin's LogicalCluster is left alone then: an edit would have
	// front-proxies lead to it, and forget the tenant's path when it goes.
	Committed bool `json:"committed,omitempty"`
}

// TakeResult is the token that guards every write from now on.
type TakeResult struct {
	Token Token `json:"token"`
	// Committed is what the claim says.
	Committed bool `json:"committed,omitempty"`
}
