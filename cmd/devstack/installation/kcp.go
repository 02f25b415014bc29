package installation

import (
	"context"
	"errors"
)

func (i *Installation) startRealKcp(ctx context.Context) (kcp, error) {
	return kcp{}, errors.New("not implemented")
}
