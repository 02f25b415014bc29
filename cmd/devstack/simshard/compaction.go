package simshard

import (
	"context"
	"log/slog"
	"time"
)

// compactionInterval is the API server's: history is kept for one to two intervals.
const compactionInterval = 5 * time.Minute

// compact drops history as an API server does, so that pinned revisions and old watches expire.
func (s *store) compact(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(compactionInterval)
	defer tick.Stop()
	var before int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if before > 0 {
			if _, err := s.client.Compact(ctx, before); err != nil {
				log.Debug("compact etcd", "error", err) // another may have compacted further
			}
		}
		if now, err := s.revision(ctx); err == nil {
			before = now
		}
	}
}
