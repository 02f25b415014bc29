package activities_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// cache is a cache server that is asked and says how many copies each shard has.
type cache struct {
	deleted, touched []int
	asked            []string
	err              error
}

func (c *cache) DeleteCopies(_ context.Context, _, shard string) (int, error) {
	c.asked = append(c.asked, "delete "+shard)
	return shift(&c.deleted), c.err
}

func (c *cache) TouchCopies(_ context.Context, _, shard string) (int, error) {
	c.asked = append(c.asked, "touch "+shard)
	return shift(&c.touched), c.err
}

// shift takes the first number, 0 where there is none.
func shift(numbers *[]int) int {
	if len(*numbers) == 0 {
		return 0
	}
	first := (*numbers)[0]
	*numbers = (*numbers)[1:]
	return first
}

func renew(t *testing.T, cache activities.Cache) (activities.RenewResult, error) {
	one := newShard(t, "root")
	one.Cache = cache
	return perform[activities.RenewResult](t, one, one.RenewCachedCopies, activities.RenewInput{Guard: fenced, DestinationShard: "shard-1"})
}

func TestRenewCachedCopies_GoesOnUntilTheOriginMakesNoneAnew(t *testing.T) {
	asked := &cache{deleted: []int{7, 2, 0}, touched: []int{6, 8, 8}}
	result, err := renew(t, asked)

	require.NoError(t, err)
	require.Equal(t, activities.RenewResult{Deleted: 9, Touched: 8}, result)
	require.Equal(t, slices.Repeat([]string{"delete root", "touch shard-1"}, 3), asked.asked, "each deletion hides the destination's copies")
}

func TestRenewCachedCopies_OriginThatCleanedUpItself_IsLookedAtTwice(t *testing.T) {
	asked := &cache{touched: []int{8, 8}}
	result, err := renew(t, asked)

	require.NoError(t, err)
	require.Equal(t, activities.RenewResult{Touched: 8}, result)
	require.Len(t, asked.asked, 4)
}

func TestRenewCachedCopies_OfATenantWithoutAny_IsOneLook(t *testing.T) {
	asked := &cache{}
	result, err := renew(t, asked)

	require.NoError(t, err)
	require.Zero(t, result)
	require.Len(t, asked.asked, 2)
}

func TestRenewCachedCopies_ThatFails_IsTriedAgainByTemporal(t *testing.T) {
	_, err := renew(t, &cache{err: errors.New("connection refused")})
	require.ErrorContains(t, err, "connection refused")

	_, err = renew(t, nil)
	require.ErrorContains(t, err, "no --cache-kubeconfig")
}
