package transfer

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

func TestSentinels_AreAllThatThePortsDeclare(t *testing.T) {
	var reasons []string
	for _, sentinel := range sentinels {
		reasons = append(reasons, sentinel.reason)
	}
	require.ElementsMatch(t, reasons, reasonsOfPorts(t))
}

// reasonsOfPorts spells every Err… of ports.go as a reason: ErrNotFound is NOT_FOUND.
func reasonsOfPorts(t *testing.T) []string {
	t.Helper()
	ports, err := parser.ParseFile(token.NewFileSet(), "../ports.go", nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	wordStart := regexp.MustCompile(`([a-z])([A-Z])`)
	var reasons []string
	ast.Inspect(ports, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, name := range spec.Names {
			if words, isError := strings.CutPrefix(name.Name, "Err"); isError {
				reasons = append(reasons, strings.ToUpper(wordStart.ReplaceAllString(words, "${1}_$2")))
			}
		}
		return true
	})
	return reasons
}

func TestErrors_CrossTheWire(t *testing.T) {
	for _, sentinel := range sentinels {
		t.Run(sentinel.reason, func(t *testing.T) {
			source := newFakeSource(tenant(1), 1)
			source.err = fmt.Errorf("ask etcd of shard root: %w", sentinel.err)
			requireEveryMethodFails(t, connect(t, source), func(err error) {
				require.ErrorIs(t, err, sentinel.err)
				require.ErrorContains(t, err, "ask etcd of shard root")
				for _, other := range sentinels {
					if other.reason != sentinel.reason {
						require.NotErrorIs(t, err, other.err)
					}
				}
			})
		})
	}
}

func TestErrors_OfTwoKindsCrossTheWireTogether(t *testing.T) {
	source := newFakeSource(nil, 1)
	source.err = errors.Join(activities.ErrCompacted, activities.ErrNotFenced)
	_, err := connect(t, source).Revision(t.Context(), guard)
	require.ErrorIs(t, err, activities.ErrCompacted)
	require.ErrorIs(t, err, activities.ErrNotFenced)
}

func TestErrors_WithoutAKind_StayOnesWorthARetry(t *testing.T) {
	source := newFakeSource(nil, 1)
	source.err = errors.New("etcd has no leader")
	requireEveryMethodFails(t, connect(t, source), func(err error) {
		require.ErrorContains(t, err, "etcd has no leader")
		for _, sentinel := range sentinels {
			require.NotErrorIs(t, err, sentinel.err)
		}
	})
}

// requireEveryMethodFails calls all methods of a Source and hands on the errors, none of which may be nil.
func requireEveryMethodFails(t *testing.T, source activities.Source, check func(error)) {
	t.Helper()
	ctx := t.Context()
	_, revisionErr := source.Revision(ctx, guard)
	_, readErr := readAll(ctx, source, readRequest())
	_, digestErr := source.Digest(ctx, guard, revision)
	_, listErr := source.List(ctx, guard, nil, revision)
	_, getErr := source.Get(ctx, guard, []activities.Ref{{Family: configMaps, Suffix: "default/a"}})
	_, objectErr := source.LogicalCluster(ctx, guard)
	_, crdsErr := source.BoundCRDs(ctx, guard, []string{"uid"})
	for _, err := range []error{revisionErr, readErr, digestErr, listErr, getErr, objectErr, crdsErr} {
		require.Error(t, err)
		check(err)
	}
}
