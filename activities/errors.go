package activities

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
)

// Types of the permanent errors: what Temporal shows as the failure's type and what clients tell apart.
// Anything else is retried. Each message says what to do next.
const (
	InvalidInput           = "InvalidInput"
	WorkflowTimeoutSet     = "WorkflowTimeoutSet"
	LogicalClusterNotFound = "LogicalClusterNotFound"
	ShardNotFound          = "ShardNotFound"
	ShardNotReady          = "ShardNotReady"
	ShardWorkerMissing     = "ShardWorkerMissing"
	SameShard              = "SameShard"
	SystemCluster          = "SystemCluster"
	NotReady               = "NotReady"
	BeingDeleted           = "BeingDeleted"
	AlreadyMigrating       = "AlreadyMigrating"
	DestinationNotEmpty    = "DestinationNotEmpty"
	DestinationOlder       = "DestinationOlder"
	BoundResourceMissing   = "BoundResourceMissing"
	TokenLoss              = "TokenLoss"
	KcpTooOld              = "KcpTooOld"
	WorkerTooOld           = "WorkerTooOld"
	EncryptedAtRest        = "EncryptedAtRest"
	WrongEtcd              = "WrongEtcd"
	Unreachable            = "Unreachable"
	Forbidden              = "Forbidden"
	NoSpace                = "NoSpace"
	EntryTooLarge          = "EntryTooLarge"
	AwayTooLong            = "AwayTooLong"
	WatchesNotCut          = "WatchesNotCut"
	FenceLost              = "FenceLost"
	TokenLost              = "TokenLost"
	DigestMismatch         = "DigestMismatch"
	Aborted                = "Aborted"
	NothingToRecover       = "NothingToRecover"
	ClaimChanged           = "ClaimChanged"
	WorkflowUnknown        = "WorkflowUnknown"
	AlreadyCommitted       = "AlreadyCommitted"
	TwoCopies              = "TwoCopies"
	DestinationAnswers     = "DestinationAnswers"
	UndoIncomplete         = "UndoIncomplete"
)

// Refuse makes a permanent error of one of the types above.
func Refuse(errorType, format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), errorType, nil)
}

// permanent turns what an adapter reports into a permanent error where another try cannot help.
// The cause is in the message: carried beside it, every client would print it twice.
func permanent(err error) error {
	// Temporal looks at the outermost error alone: one that is wrapped would be retried.
	var refusal *temporal.ApplicationError
	if errors.As(err, &refusal) {
		return refusal
	}
	for _, known := range []struct {
		cause     error
		errorType string
		advice    string
	}{
		{ErrTokenLost, TokenLost, "the claim in that shard's etcd is not this attempt's any more: a recovery has taken it over, or somebody has deleted it; `kcp-migrate recover <logical cluster>` shows which"},
		{ErrNotFenced, FenceLost, "someone lifted the fence or deleted the logical cluster; start the move again"},
		{ErrNoSpace, NoSpace, "compact and defragment that etcd or raise its quota, and disarm the alarm; a move that was undone can then be started again"},
		{ErrTooLarge, EntryTooLarge, "raise that etcd's --max-request-bytes to the origin's at least, and start the move again"},
		{ErrForbidden, Forbidden, "give the worker's credentials the rights that docs/operations.md lists"},
	} {
		if errors.Is(err, known.cause) {
			return Refuse(known.errorType, "%v: %s", err, known.advice)
		}
	}
	return err
}

// permanentForward is permanent for what can still be undone: a value that cannot be decrypted, or a worker that is too old,
// ends the move. The undo itself, and what comes after the commit, would be left undone for want of the same: they are retried
// until a person has mended the worker's configuration, or upgraded it.
func permanentForward(err error) error {
	if errors.Is(err, ErrProtocol) {
		return Refuse(WorkerTooOld, "%v", err)
	}
	if errors.Is(err, ErrEncrypted) {
		return Refuse(EncryptedAtRest,
			"%v: give that shard's worker, as --encryption-provider-config, the very file that its API servers have, with every key that is in use", err)
	}
	return permanent(err)
}
