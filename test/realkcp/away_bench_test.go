package realkcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	awayRounds     = 5
	awayConfigMaps = 5_000
	// parallelWrites fill the tenant.
	parallelWrites = 16
)

// BenchmarkAway measures for how long a client that asks through the front-proxy every 10 ms is not served while its
// tenant of 5,000 ConfigMaps of 1 kB moves: the median of five moves out and five back.
func BenchmarkAway(b *testing.B) {
	stack := theStack(b)
	tenant := stack.create(b, "big", rootShard)
	tenant.fill(b, awayConfigMaps)
	b.ResetTimer()
	for range b.N {
		away := map[string][]time.Duration{}
		for range awayRounds {
			for _, leg := range thereAndBack {
				away[leg.destination] = append(away[leg.destination], stack.measureAway(b, tenant, leg))
			}
		}
		b.ReportMetric(median(away[otherShard]).Seconds()*1000, "out-ms/move")
		b.ReportMetric(median(away[rootShard]).Seconds()*1000, "back-ms/move")
	}
	b.StopTimer()
	stack.delete(b, "big")
}

func (s *stack) measureAway(b *testing.B, tenant *workspace, leg leg) time.Duration {
	b.Helper()
	poller, err := s.StartPoller(b.Context(), tenant.path)
	require.NoError(b, err)
	result := s.move(b, tenant.path, leg.destination)
	seen := poller.Stop()
	steps := ""
	for _, step := range result.Steps {
		steps += fmt.Sprintf(" %s %s;", step.Name, time.Duration(step.Took))
	}
	b.Logf("%s->%s: not served for %s in all, %s at a stretch, answers by status %v;%s",
		leg.origin, leg.destination, seen.Total, seen.Longest, seen.Answers, steps)
	return seen.Total
}

func (w *workspace) fill(b *testing.B, count int) {
	b.Helper()
	var creates errgroup.Group
	creates.SetLimit(parallelWrites)
	for index := range count {
		object := newConfigMap(fmt.Sprintf("filler-%d", index), map[string]any{"blob": strings.Repeat("x", 1000)})
		creates.Go(func() error {
			_, err := w.of(configMaps, "default").Create(b.Context(), object, metav1.CreateOptions{})
			return err
		})
	}
	require.NoError(b, creates.Wait())
}

func median(durations []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(durations))[len(durations)/2]
}
