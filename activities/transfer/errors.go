package transfer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// errorDomain names whose reasons these are, as errdetails.ErrorInfo wants it.
const errorDomain = "kcp-migrate.io"

// sentinels are the errors that activities decide by, and how each travels. Reasons are part of the protocol.
var sentinels = []struct {
	err    error
	code   codes.Code
	reason string
}{
	{activities.ErrTokenLost, codes.PermissionDenied, "TOKEN_LOST"},
	{activities.ErrForbidden, codes.PermissionDenied, "FORBIDDEN"},
	{activities.ErrNotFenced, codes.FailedPrecondition, "NOT_FENCED"},
	{activities.ErrEncrypted, codes.FailedPrecondition, "ENCRYPTED"},
	{activities.ErrCommitted, codes.FailedPrecondition, "COMMITTED"},
	{activities.ErrCutOff, codes.FailedPrecondition, "CUT_OFF"},
	{activities.ErrProtocol, codes.FailedPrecondition, "PROTOCOL"},
	{activities.ErrConflict, codes.Aborted, "CONFLICT"},
	{activities.ErrClaimed, codes.AlreadyExists, "CLAIMED"},
	{activities.ErrCompacted, codes.OutOfRange, "COMPACTED"},
	{activities.ErrDeletionsUnknown, codes.OutOfRange, "DELETIONS_UNKNOWN"},
	{activities.ErrNoSpace, codes.ResourceExhausted, "NO_SPACE"},
	{activities.ErrTooLarge, codes.ResourceExhausted, "TOO_LARGE"},
	{activities.ErrNotFound, codes.NotFound, "NOT_FOUND"},
}

// toStatus gives err a code and one reason for every sentinel in it; what has none is gRPC's to translate.
func toStatus(err error) error {
	code := codes.OK
	var reasons []protoadapt.MessageV1
	for _, sentinel := range sentinels {
		if !errors.Is(err, sentinel.err) {
			continue
		}
		if code == codes.OK {
			code = sentinel.code
		}
		reasons = append(reasons, &errdetails.ErrorInfo{Reason: sentinel.reason, Domain: errorDomain})
	}
	if code == codes.OK {
		return err
	}
	detailed, detailErr := status.New(code, err.Error()).WithDetails(reasons...)
	if detailErr != nil {
		return errors.Join(err, detailErr)
	}
	return detailed.Err()
}

// fromStatus makes what the origin worker answered decidable again. It is the caller's own cancellation
// only if the caller's context says so: an origin worker that stops must not look like one.
func fromStatus(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	answer, ok := status.FromError(err)
	if !ok {
		return err
	}
	remote := &remoteError{code: answer.Code(), message: answer.Message()}
	for _, detail := range answer.Details() {
		info, isInfo := detail.(*errdetails.ErrorInfo)
		if !isInfo || info.GetDomain() != errorDomain {
			continue
		}
		for _, sentinel := range sentinels {
			if sentinel.reason == info.GetReason() {
				remote.sentinels = append(remote.sentinels, sentinel.err)
			}
		}
	}
	if remote.code == codes.Unimplemented {
		// It has no method of that name, and does not know that it should tell its version.
		return fmt.Errorf("%w: the origin's serves an older one (%s); upgrade the origin shard's workers", activities.ErrProtocol, remote.message)
	}
	return remote
}

// remoteError is an error of the origin worker, in its words.
type remoteError struct {
	code      codes.Code
	message   string
	sentinels []error
}

func (e *remoteError) Error() string {
	if len(e.sentinels) > 0 {
		return e.message
	}
	return fmt.Sprintf("%s: %s", e.code, e.message)
}

func (e *remoteError) Unwrap() []error { return e.sentinels }
