package objects

import (
	"fmt"
	"time"
)

// kcp's own names, as in github.com/kcp-dev/sdk/apis/core/v1alpha1, spelled here so that this package stays free of clients.
const (
	// InactiveAnnotation fences a logical cluster, from kcp 0.32 on.
	InactiveAnnotation = "core.kcp.io/inactive"
	// legacyInactiveAnnotation did the same before 0.32 and is still heeded.
	legacyInactiveAnnotation = "internal.kcp.io/inactive"
	// shardAnnotation names the shard by its Shard object's name.
	shardAnnotation = "core.kcp.io/shard"
	pathAnnotation  = "kcp.io/path"
	phaseLabel      = "tenancy.kcp.io/phase"
	// nativeMigrationAnnotation is set by kcp's own LogicalClusterMigration controllers.
	nativeMigrationAnnotation = "internal.kcp.io/migrating"

	// MoveAnnotation stamps a fence with the token of the move that set it.
	MoveAnnotation = "kcp-migrate.io/move"
	// MovedAtAnnotation is the touch that makes every route index hear of the destination last.
	MovedAtAnnotation = "kcp-migrate.io/moved-at"
)

// Phases of a LogicalCluster that a move must tell apart.
const (
	PhaseReady       = "Ready"
	PhaseInactive    = "Inactive"
	PhaseTerminating = "Terminating"
	PhaseDeleting    = "Deleting"
	PhaseUnavailable = "Unavailable"
)

// LogicalCluster is a LogicalCluster object as it stands in etcd.
type LogicalCluster struct {
	content object
}

// ParseLogicalCluster reads the value of a LogicalCluster's key.
func ParseLogicalCluster(value []byte) (*LogicalCluster, error) {
	content, err := parse(value)
	if err != nil {
		return nil, fmt.Errorf("parse LogicalCluster: %w", err)
	}
	if kind := content.text("kind"); kind != "LogicalCluster" {
		return nil, fmt.Errorf("parse LogicalCluster: kind is %q", kind)
	}
	return &LogicalCluster{content: content}, nil
}

// Encode gives the value to write.
func (l *LogicalCluster) Encode() ([]byte, error) { return l.content.encode() }

// Phase is status.phase.
func (l *LogicalCluster) Phase() string { return l.content.look("status").text("phase") }

// Inactive reports whether the object carries an annotation that fences it.
func (l *LogicalCluster) Inactive() bool {
	annotations := l.annotations()
	return annotations.text(InactiveAnnotation) == "true" || annotations.text(legacyInactiveAnnotation) == "true"
}

// CutsInformers reports whether kcp's controller, once it sees the object like this, cuts the shard's informers off: on the way
// to Inactive it cancels all wildcard requests, on the way back it drops what it had cancelled and with it what has begun
// since (kcp pkg/reconciler/core/logicalcluster, phaseReconciler). An object that is being deleted takes neither way.
func (l *LogicalCluster) CutsInformers() bool {
	if l.BeingDeleted() {
		return false
	}
	return l.Phase() == PhaseReady && l.Inactive() || l.Phase() == PhaseInactive && !l.Inactive()
}

// Stamp is the token of the move that fenced the object, empty when none did.
func (l *LogicalCluster) Stamp() string { return l.annotations().text(MoveAnnotation) }

// Shard is the shard that the object names.
func (l *LogicalCluster) Shard() string { return l.annotations().text(shardAnnotation) }

// UID is the object's own.
func (l *LogicalCluster) UID() string { return l.content.look("metadata").text("uid") }

// Path is the workspace path, e.g. root:org:ws.
func (l *LogicalCluster) Path() string { return l.annotations().text(pathAnnotation) }

// NativeMigration names the LogicalClusterMigration of kcp's own that has hold of the object, empty when none has.
func (l *LogicalCluster) NativeMigration() string {
	return l.annotations().text(nativeMigrationAnnotation)
}

// Owner is the Workspace that the object belongs to, by its logical cluster, name and UID; all are empty where it has none.
func (l *LogicalCluster) Owner() (logicalCluster, name, uid string) {
	owner := l.content.look("spec", "owner")
	return owner.text("cluster"), owner.text("name"), owner.text("uid")
}

// Adopt puts another token into the stamp of an object that a move has fenced. False: none has.
func (l *LogicalCluster) Adopt(token string) bool {
	if l.Stamp() == "" {
		return false
	}
	l.content.at("metadata", "annotations")[MoveAnnotation] = token
	return true
}

// BeingDeleted reports whether the object has a deletionTimestamp.
func (l *LogicalCluster) BeingDeleted() bool {
	return l.content.look("metadata").text("deletionTimestamp") != ""
}

// Fence marks the object inactive and stamps it with a token.
func (l *LogicalCluster) Fence(token string) {
	annotations := l.content.at("metadata", "annotations")
	annotations[InactiveAnnotation] = "true"
	annotations[MoveAnnotation] = token
}

// Lift takes the fence and its stamp away.
func (l *LogicalCluster) Lift() {
	annotations := l.annotations()
	delete(annotations, InactiveAnnotation)
	delete(annotations, MoveAnnotation)
}

// SetPhase writes the phase into status and label, as kcp's controller does.
func (l *LogicalCluster) SetPhase(phase string) {
	l.content.at("status")["phase"] = phase
	l.content.at("metadata", "labels")[phaseLabel] = phase
}

// Enclose makes of the origin's fenced object the destination's: fenced, already Inactive and naming the
// destination, so that the destination's controllers leave the cluster alone while it is being filled.
func (l *LogicalCluster) Enclose(token, shard string) {
	l.Fence(token)
	l.SetPhase(PhaseInactive)
	l.content.at("metadata", "annotations")[shardAnnotation] = shard
}

// Open makes of the origin's fenced object the one that opens the destination: no fence, phase Inactive so that
// the destination's controller drops stale contexts as it turns it Ready, and the origin's shard annotation
// kept: only because the controller corrects it does it also patch the owner Workspace.
func (l *LogicalCluster) Open() {
	l.Lift()
	l.SetPhase(PhaseInactive)
}

// Dismiss marks the fenced object as being deleted, with the fence still on it, and as Inactive once more, so that every API
// server's controller that looks at it drops its contexts as it turns it Deleting (kcp pkg/reconciler/core/logicalcluster,
// phaseReconciler). Nobody acts on it beyond that: without terminators and finalizers kcp has nothing to do before it goes
// (logicalclusterdeletion deletes what a logical cluster holds only for its finalizer), and with a grace period an API server
// does not take it away at the next edit (k8s.io/apiserver, ShouldDeleteDuringUpdate).
func (l *LogicalCluster) Dismiss(at time.Time) {
	metadata := l.content.at("metadata")
	metadata["deletionTimestamp"] = at.UTC().Format(time.RFC3339)
	metadata["deletionGracePeriodSeconds"] = dismissalSeconds
	delete(metadata, "finalizers")
	delete(l.content.at("status"), "terminators")
	l.SetPhase(PhaseInactive)
}

// Reserve opens a dismissed object to members of system:masters alone. Of all phases this is one in which kcp lets nobody else in
// (pkg/authorization/workspace_content_authorizer.go), and on which its controllers do not act.
func (l *LogicalCluster) Reserve() {
	metadata := l.content.at("metadata")
	delete(metadata, "deletionTimestamp")
	delete(metadata, "deletionGracePeriodSeconds")
	delete(l.annotations(), InactiveAnnotation)
	l.SetPhase(PhaseUnavailable)
}

// dismissalSeconds is a grace period that nothing waits for: we delete the object.
const dismissalSeconds = 3600

// Touch notes when the move left the origin.
func (l *LogicalCluster) Touch(at time.Time) {
	l.content.at("metadata", "annotations")[MovedAtAnnotation] = at.UTC().Format(time.RFC3339Nano)
}

// MovedAt is what Touch noted, empty before.
func (l *LogicalCluster) MovedAt() string { return l.annotations().text(MovedAtAnnotation) }

func (l *LogicalCluster) annotations() object { return l.content.look("metadata", "annotations") }
