package etcd

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// meanings are etcd's errors that activities decide upon.
var meanings = map[error]error{
	rpctypes.ErrCompacted:        activities.ErrCompacted,
	rpctypes.ErrNoSpace:          activities.ErrNoSpace,
	rpctypes.ErrPermissionDenied: activities.ErrForbidden,
	rpctypes.ErrAuthFailed:       activities.ErrForbidden,
	rpctypes.ErrInvalidAuthToken: activities.ErrForbidden,
	rpctypes.ErrUserEmpty:        activities.ErrForbidden,
}

// translate gives etcd's errors the names that the activities know.
func translate(err error) error {
	if isTooLarge(err) {
		return fmt.Errorf("%w: %w", activities.ErrTooLarge, err)
	}
	var refusal rpctypes.EtcdError
	if !errors.As(err, &refusal) {
		return err
	}
	if meaning, known := meanings[refusal]; known {
		return fmt.Errorf("%w: %w", meaning, err)
	}
	return err
}

func isTooManyOps(err error) bool { return errors.Is(err, rpctypes.ErrTooManyOps) }

// isTooLarge covers etcd's own limit (--max-request-bytes) and that of its gRPC server, which is 512 KiB above.
func isTooLarge(err error) bool {
	if errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return true
	}
	answer, ok := status.FromError(err)
	return ok && answer.Code() == codes.ResourceExhausted && strings.Contains(answer.Message(), "larger than max")
}

func isUnimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }
