package activities

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// What the adapters report so that activities can decide. Everything else they return is worth a retry.
var (
	// ErrTokenLost: the claim does not hold the guard's token; this attempt was given up for dead.
	ErrTokenLost = errors.New("claim does not hold this token")
	// ErrConflict: an object changed or vanished since it was read.
	ErrConflict = errors.New("object changed since it was read")
	// ErrClaimed: another move holds the claim.
	ErrClaimed = errors.New("logical cluster is claimed by another move")
	// ErrCompacted: the pinned revision is gone; read again at a newer one.
	ErrCompacted = errors.New("revision was compacted")
	// ErrDeletionsUnknown: all was done, but what others have deleted cannot be told any more.
	ErrDeletionsUnknown = errors.New("deletions by others cannot be told")
	// ErrCommitted: the commit of this move has landed.
	ErrCommitted = errors.New("commit has landed")
	// ErrNoSpace: etcd is out of space.
	ErrNoSpace = errors.New("etcd is out of space")
	// ErrTooLarge: etcd takes no request as large as this.
	ErrTooLarge = errors.New("request is too large for etcd")
	// ErrNotFenced: the origin's fence does not stand or is not of this move.
	ErrNotFenced = errors.New("logical cluster is not fenced by this move")
	// ErrCutOff: kcp has cut the shard's informers off since the cut that was waited out.
	ErrCutOff = errors.New("informers were cut off")
	// ErrNotFound: there is no such object.
	ErrNotFound = errors.New("not found")
	// ErrForbidden: the credentials do not suffice.
	ErrForbidden = errors.New("credentials do not suffice")
	// ErrProtocol: the workers of the two shards are of versions too far apart.
	ErrProtocol = errors.New("workers do not speak the same transfer protocol")
	// ErrEncrypted: a value is encrypted at rest, or not, in another way than the worker knows of.
	ErrEncrypted = errors.New("value cannot be decrypted")
)

// WhicheverCut has entries deleted whether kcp's informers can see it or not.
const WhicheverCut int64 = 0

// Object is one etcd value and the revision that guards an edit of it.
type Object struct {
	Value       []byte
	ModRevision int64
	// Revision is the store's own at the time of reading.
	Revision int64
}

// Claim is what a move leaves in both etcds: the token, who to ask about it, and how far it came.
type Claim struct {
	Token     Token `json:"token"`
	Committed bool  `json:"committed"`
	// Landing is there where it is Committed.
	Landing *Landing `json:"landing,omitempty"`
	// DroppedAt is the revision at which it was first noted under the claim that the origin's LogicalCluster goes, after the
	// commit; 0 before. Whatever is written there later is not the tenant's.
	DroppedAt int64 `json:"droppedAt,omitempty"`
	ClaimInfo
}

// Claimant is the run that holds the claim, empty where there is none. A claim that was sealed by deleting its token has
// only its info left to tell.
func (c Claim) Claimant() string {
	if c.Token != "" {
		return c.Token.Run()
	}
	return c.RunID
}

// Landing is what the commit's Txn leaves in the destination's claim: all that finishing the move takes, should its
// workflow be lost.
type Landing struct {
	// Token is the one under which the commit landed, or that of the run which has taken the claim over since.
	Token Token `json:"token"`
	// Revision is the destination's of the commit.
	Revision int64 `json:"revision,omitempty"`
	// VerifiedRevision is the origin's up to which both sides were equal.
	VerifiedRevision int64 `json:"verifiedRevision"`
	// Entries, Bytes and SHA256 are what both sides agreed on.
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// ClaimInfo tells a person who finds a claim what it belongs to.
type ClaimInfo struct {
	WorkflowID       string    `json:"workflowID"`
	RunID            string    `json:"runID"`
	Path             string    `json:"path"`
	OriginShard      string    `json:"originShard"`
	DestinationShard string    `json:"destinationShard"`
	ClaimedAt        time.Time `json:"claimedAt"`
	// Recovers is the run of the move itself where another run has taken the claim over.
	Recovers string `json:"recovers,omitempty"`
}

// Move is the run of the move that the claim belongs to, whoever holds it now.
func (i ClaimInfo) Move() string { return cmp.Or(i.Recovers, i.RunID) }

// StoreHealth is what can stop a write before it starts.
type StoreHealth struct {
	Revision int64    `json:"revision"`
	Alarms   []string `json:"alarms,omitempty"`
	// DatabaseBytes is the size of the largest member's database, QuotaBytes its limit; 0 when the server does not tell.
	DatabaseBytes int64 `json:"databaseBytes"`
	QuotaBytes    int64 `json:"quotaBytes,omitempty"`
	// Version is the oldest member's.
	Version string `json:"version"`
	// MaxEntriesPerSecond and MaxBytesPerSecond are what an operator allows all moves of a worker; 0 for no limit.
	MaxEntriesPerSecond int `json:"maxEntriesPerSecond,omitempty"`
	MaxBytesPerSecond   int `json:"maxBytesPerSecond,omitempty"`
	// Braked is whether moves are slowed down while they make others wait.
	Braked bool `json:"braked,omitempty"`
}

// Reader reads the entries of logical clusters.
type Reader interface {
	// Health also proves that the store can be reached.
	Health(ctx context.Context) (StoreHealth, error)
	// Slowed says why the moves at this store are slowed down for others' sake, and is empty where they are not.
	Slowed() string
	// Revision is the store's current one, read linearizably.
	Revision(ctx context.Context) (int64, error)
	// Read streams every entry but the LogicalCluster at a pinned revision.
	Read(ctx context.Context, request ReadRequest) Batches
	// Digest discovers the families anew and sums each up at a pinned revision.
	Digest(ctx context.Context, logicalCluster string, revision int64) (Digest, error)
	// List gives the entries of some families without their values, at a pinned revision, in key order.
	List(ctx context.Context, logicalCluster string, families []keyspace.Family, revision int64) ([]Listed, error)
	// Get gives those of refs that exist now.
	Get(ctx context.Context, logicalCluster string, refs []Ref) ([]Entry, error)
	// Encrypted gives those of the families whose values the store encrypts at rest.
	Encrypted(families []keyspace.Family) []keyspace.Family
	// CheckEncryption reads a few values of each family, whosever they are: ErrEncrypted where the newest cannot be decrypted.
	CheckEncryption(ctx context.Context, families []keyspace.Family) error
	// Keys lists at most limit keys of a logical cluster as they stand in etcd now, its LogicalCluster included.
	Keys(ctx context.Context, logicalCluster string, limit int) ([]string, error)
}

// Writer writes and deletes entries; every Txn compares the guard's token.
type Writer interface {
	// Write puts entries in Txns, a few in flight; acknowledged is called in order as they land.
	Write(ctx context.Context, guard Guard, batches Batches, acknowledged func(Written)) error
	// Repair puts entries and deletes refs while the LogicalCluster is at a revision (0: while there is none), else ErrConflict.
	Repair(ctx context.Context, guard Guard, enclosedAt int64, puts []Entry, deletes []Ref) error
	// PutIfUnchanged writes an entry only where the present one's ModRevision is at most maxModRevision
	// (0: only where there is none, else only where there is one). Returns the entry's new ModRevision, 0 where it
	// was not written: it changed, is gone, or somebody else's is there.
	PutIfUnchanged(ctx context.Context, guard Guard, entry Entry, maxModRevision int64) (int64, error)
	// DeleteVerified deletes the entries, all but the LogicalCluster, that have not changed since the verified revision.
	// What has changed is left and returned, deletions since then too. Idempotent. ErrDeletionsUnknown, beside all else, where
	// etcd's history does not reach back to that revision. ErrCutOff as soon as another cut than the given one is the latest.
	DeleteVerified(ctx context.Context, guard Guard, verifiedRevision, cut int64) (deleted int64, changed []Straggler, err error)
	// DeleteRefs deletes the named entries where their ModRevision is the given one. ErrConflict where one is not.
	DeleteRefs(ctx context.Context, guard Guard, entries []Listed) error
	// DeleteAll deletes every entry, all but the LogicalCluster. Idempotent.
	DeleteAll(ctx context.Context, guard Guard) (deleted int64, err error)
}

// Claimer keeps two moves of one logical cluster apart.
type Claimer interface {
	// Claim is create-only; a repeat with the same token succeeds, another move's claim gives ErrClaimed and that claim.
	Claim(ctx context.Context, guard Guard, info ClaimInfo) (Claim, error)
	// ReadClaim gives ErrNotFound where there is none.
	ReadClaim(ctx context.Context, logicalCluster string) (Claim, error)
	// OthersSince gives when the first of the claims on this shard but the logical cluster's own was made whose token was raised
	// since, zero where there is none.
	OthersSince(ctx context.Context, logicalCluster string) (time.Time, error)
	// TakeClaim takes the claim over from the run that held it, "" for nobody: whatever that run still does under its tokens
	// fails from then on. The guard's run gets the token's number and the landing as they were. Idempotent. ErrClaimed, and
	// that claim, where another run holds it by now.
	TakeClaim(ctx context.Context, guard Guard, from string, info ClaimInfo) (Claim, error)
	// RaiseToken replaces guard's token by a higher one of the same run. Idempotent. ErrTokenLost if the claim is not this run's.
	RaiseToken(ctx context.Context, guard Guard, to Token) error
	// Seal is RaiseToken in one Txn with the proof that the commit has not landed: ErrCommitted if it has.
	// After it no commit under the old token can land. A claim that is gone seals nothing and is no error.
	Seal(ctx context.Context, guard Guard, to Token) error
	// Release removes the claim. Idempotent.
	Release(ctx context.Context, guard Guard) error
}

// ObjectEditor edits single objects of kcp in etcd.
type ObjectEditor interface {
	// LogicalCluster reads a LogicalCluster object; ErrNotFound where there is none.
	LogicalCluster(ctx context.Context, logicalCluster string) (Object, error)
	// AwaitLogicalCluster watches the object until done says so. It is called with the present state first,
	// with nil when the object is gone.
	AwaitLogicalCluster(ctx context.Context, logicalCluster string, done func(*Object) (bool, error)) error
	// EditLogicalCluster writes logicalCluster's object (the guard's, or system:shard) if its ModRevision is
	// still the given one (0: if it is absent). Returns the revision of the write.
	EditLogicalCluster(ctx context.Context, guard Guard, logicalCluster string, modRevision int64, value []byte) (int64, error)
	// EditCutting is EditLogicalCluster for an object on which kcp's controller acts by cutting the shard's informers off: the
	// cut is noted in the same Txn.
	EditCutting(ctx context.Context, guard Guard, logicalCluster string, modRevision int64, value []byte) (int64, error)
	// LatestCut gives the revision at which the latest cut of the shard's informers was noted, 0 where none was.
	LatestCut(ctx context.Context) (int64, error)
	// DeleteLogicalCluster deletes the guard's LogicalCluster object if its ModRevision is still the given one.
	DeleteLogicalCluster(ctx context.Context, guard Guard, modRevision int64) error
	// NoteDropping leaves in the claim that the origin's LogicalCluster is about to go, after the commit. Idempotent.
	NoteDropping(ctx context.Context, guard Guard) error
	// DropLogicalCluster is DeleteLogicalCluster for an origin after the commit: the claim tells of it from then on.
	DropLogicalCluster(ctx context.Context, guard Guard, modRevision int64) error
	// Commit writes the guard's LogicalCluster object, leaves the landing in the claim and raises its token, in one Txn.
	// A repeat after it landed succeeds and gives the revision of the landing. It notes the cut of this shard's informers.
	Commit(ctx context.Context, guard Guard, modRevision int64, value []byte, raiseTo Token, landing Landing) (int64, error)
	// BoundCRDs gives the CRDs in system:bound-crds that are named by these schema UIDs, by UID; absent ones are left out.
	BoundCRDs(ctx context.Context, schemaUIDs []string) (map[string][]byte, error)
	// CreateBoundCRD creates one unless it exists.
	CreateBoundCRD(ctx context.Context, guard Guard, schemaUID string, value []byte) (created bool, err error)
	// LiftRevision raises the store's revision to at least the given one by tiny writes outside kcp's prefix.
	LiftRevision(ctx context.Context, guard Guard, revision int64, perSecond int, progress func(revision int64)) (int64, error)
	// Lock takes a lock that ends with the process, for what only one worker of a shard may do at a time.
	Lock(ctx context.Context, name string) (unlock func(), err error)
}

// Store is one shard's etcd.
type Store interface {
	Reader
	Writer
	Claimer
	ObjectEditor
}

// Version is which kcp a shard runs.
type Version struct {
	// Kcp is the version as the server tells it, e.g. "v0.32.3"; empty when the build does not say.
	Kcp string `json:"kcp"`
	// FencesByAnnotation is whether the LogicalCluster CRD knows the phase Inactive (kcp 0.32 and later).
	FencesByAnnotation bool `json:"fencesByAnnotation"`
}

// Identity is what ties a shard's API servers to its etcd.
type Identity struct {
	// UID is that of the LogicalCluster system:shard, of which every shard has its own.
	UID string
	// Revision is their etcd's at the time of asking, read as a quorum has it.
	Revision int64
}

// Contents is what a tenant has that a plan must speak of, read through the shard's API.
type Contents struct {
	// Bindings are the APIBindings' bound resources.
	Bindings []BoundResource `json:"bindings,omitempty"`
	// ChildWorkspaces do not move.
	ChildWorkspaces []string `json:"childWorkspaces,omitempty"`
	ServiceAccounts int      `json:"serviceAccounts"`
	TokenSecrets    int      `json:"tokenSecrets"`
	APIExports      []string `json:"apiExports,omitempty"`
}

// BoundResource is one resource that an APIBinding brings.
type BoundResource struct {
	Binding   string `json:"binding"`
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Identity  string `json:"identity"`
	SchemaUID string `json:"schemaUID"`
}

// Probe is how one server answered.
type Probe struct {
	Server string `json:"server"`
	// OK is that all requests had the wanted answers.
	OK bool `json:"ok"`
	// Unreachable is that some request had no answer at all, which no nudge can mend.
	Unreachable bool `json:"unreachable,omitempty"`
	// Detail says what came instead.
	Detail string `json:"detail,omitempty"`
}

// Canaries are watches on the origin that prove that clients' watches were cut.
type Canaries interface {
	// AwaitCut returns when every canary has been cut, or with the servers whose canary still stands when ctx is done.
	// One whose connection broke is an error: it proves nothing.
	AwaitCut(ctx context.Context) (uncut []string, err error)
	Close()
}

// ShardAPI is one shard's kcp API, through every one of its API servers.
type ShardAPI interface {
	Version(ctx context.Context) (Version, error)
	// Identity tells by what the API servers can be known to be a store's.
	Identity(ctx context.Context) (Identity, error)
	// SigningKeys is a fingerprint of the keys that service-account tokens are checked with, and their issuer.
	SigningKeys(ctx context.Context) (string, error)
	Contents(ctx context.Context, logicalCluster string) (Contents, error)
	// OpenCanaries opens one watch through every API server and returns once all stand.
	OpenCanaries(ctx context.Context, logicalCluster string) (Canaries, error)
	// ProbeServing asks every API server for the logical cluster and for a wildcard list; OK is 200 for both.
	ProbeServing(ctx context.Context, logicalCluster string) []Probe
	// ProbeWildcard asks every API server for a wildcard list alone.
	ProbeWildcard(ctx context.Context) []Probe
	// ProbeCluster asks every API server for the logical cluster alone; OK is 200.
	ProbeCluster(ctx context.Context, logicalCluster string) []Probe
	// ProbeFenced asks every API server for the logical cluster; OK is 403.
	ProbeFenced(ctx context.Context, logicalCluster string) []Probe
	// ProbeResources asks every API server to list each bound resource; OK is 200 for all.
	ProbeResources(ctx context.Context, logicalCluster string, resources []BoundResource) []Probe
	// AwaitInformers returns once every API server's own informers have seen what was written after the call began.
	// The logical cluster only keeps the signs of two moves apart.
	AwaitInformers(ctx context.Context, logicalCluster string) error
}

// Cache is kcp's cache server, in which every shard keeps copies, under its own name, of what other shards must know.
type Cache interface {
	// DeleteCopies deletes a shard's copies of a logical cluster's objects. Returns how many there were.
	DeleteCopies(ctx context.Context, logicalCluster, shard string) (int, error)
	// TouchCopies edits a shard's copies of a logical cluster's objects, so that every shard hears of them anew.
	// Returns how many there are.
	TouchCopies(ctx context.Context, logicalCluster, shard string) (int, error)
}

// OwnerRef is the Workspace that a LogicalCluster belongs to.
type OwnerRef struct {
	LogicalCluster string `json:"logicalCluster"`
	Name           string `json:"name"`
	UID            string `json:"uid"`
}

// Location is a logical cluster as the front-proxy knows it.
type Location struct {
	LogicalCluster string    `json:"logicalCluster"`
	Path           string    `json:"path"`
	Shard          string    `json:"shard"`
	Owner          *OwnerRef `json:"owner,omitempty"`
}

// ShardInfo is a Shard object.
type ShardInfo struct {
	Name string `json:"name"`
	// NotReady says why a shard is not ready; empty when it is.
	NotReady string `json:"notReady,omitempty"`
}

// Directory is kcp as a whole, through its front-proxies.
type Directory interface {
	// Locate resolves a path (root:org:ws) or a logical cluster's name. ErrNotFound, ErrForbidden.
	Locate(ctx context.Context, pathOrName string) (Location, error)
	// Shards lists the Shard objects.
	Shards(ctx context.Context) ([]ShardInfo, error)
	// OwnerShard is the shard that the owner Workspace names; ErrNotFound when it is gone or has another UID.
	OwnerShard(ctx context.Context, owner OwnerRef) (string, error)
	// TouchOwner edits the owner Workspace without changing what it says; ErrNotFound when it is gone, ErrForbidden.
	TouchOwner(ctx context.Context, owner OwnerRef) error
	// ProbeFrontProxies asks every front-proxy for the logical cluster, by path or name, and its shard annotation; OK is 200
	// and the wanted shard.
	ProbeFrontProxies(ctx context.Context, pathOrName, shard string) []Probe
}

// Runs tells of Temporal's workflows.
type Runs interface {
	// State is that of the latest run of a workflow ID; ErrNotFound where the namespace knows none.
	State(ctx context.Context, workflowID string) (RunState, error)
}

// RunState is what Temporal says of a workflow.
type RunState struct {
	// Name is Temporal's word for it, like Running or Terminated; empty where it knows none.
	Name    string `json:"name,omitempty"`
	Running bool   `json:"running,omitempty"`
}

// Source is the origin as a destination worker sees it: every answer only for a cluster whose claim names the guard's run.
type Source interface {
	// Revision is the origin's current one, taken after checking that the fence of the guard's run stands, else ErrNotFenced.
	Revision(ctx context.Context, guard Guard) (int64, error)
	Read(ctx context.Context, guard Guard, request ReadRequest) Batches
	Digest(ctx context.Context, guard Guard, revision int64) (Digest, error)
	List(ctx context.Context, guard Guard, families []keyspace.Family, revision int64) ([]Listed, error)
	Get(ctx context.Context, guard Guard, refs []Ref) ([]Entry, error)
	// LogicalCluster is the origin's object while the fence of the guard's run stands, else ErrNotFenced.
	LogicalCluster(ctx context.Context, guard Guard) (Object, error)
	BoundCRDs(ctx context.Context, guard Guard, schemaUIDs []string) (map[string][]byte, error)
}

// Dialer reaches the origin worker that serves at an address.
type Dialer interface {
	// Dial gives a Source and what closes it. It does not wait for the connection.
	Dial(address string) (Source, func(), error)
}
