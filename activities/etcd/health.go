package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coreos/go-semver/semver"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcp-migrate/kcp-migrate/activities"
)

// statusTimeout is for one member; the others answer for one that is down.
const statusTimeout = 3 * time.Second

// Health proves that the store can be reached, and sums up what its members say of themselves.
func (s *Store) Health(ctx context.Context) (activities.StoreHealth, error) {
	revision, err := s.Revision(ctx)
	if err != nil {
		return activities.StoreHealth{}, fmt.Errorf("check health: %w", err)
	}
	alarms, err := s.alarms(ctx)
	if err != nil {
		return activities.StoreHealth{}, fmt.Errorf("check health: %w", err)
	}
	members, err := s.statuses(ctx)
	if err != nil {
		return activities.StoreHealth{}, fmt.Errorf("check health: %w", err)
	}
	health := activities.StoreHealth{
		Revision: revision, Alarms: alarms,
		MaxEntriesPerSecond: s.pace.maxEntries, MaxBytesPerSecond: s.pace.maxBytes, Braked: s.pace.brake != nil,
	}
	for _, member := range members {
		health.DatabaseBytes = max(health.DatabaseBytes, member.DbSize)
		// Servers before 3.6 do not tell their quota.
		if quota := member.DbSizeQuota; quota > 0 && (health.QuotaBytes == 0 || quota < health.QuotaBytes) {
			health.QuotaBytes = quota
		}
		if health.Version == "" || older(member.Version, health.Version) {
			health.Version = member.Version
		}
	}
	return health, nil
}

// alarms are NOSPACE and CORRUPT, each once however many members raise it.
func (s *Store) alarms(ctx context.Context) ([]string, error) {
	response, err := s.client.AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list alarms: %w", translate(err))
	}
	var alarms []string
	for _, alarm := range response.Alarms {
		alarms = append(alarms, alarm.Alarm.String())
	}
	slices.Sort(alarms)
	return slices.Compact(alarms), nil
}

// statuses asks every endpoint, and is content with one answer: a quorum has just answered.
func (s *Store) statuses(ctx context.Context) ([]*clientv3.StatusResponse, error) {
	type answer struct {
		status *clientv3.StatusResponse
		err    error
	}
	endpoints := s.client.Endpoints()
	answers := make(chan answer, len(endpoints))
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	for _, endpoint := range endpoints {
		go func() {
			status, err := s.client.Status(ctx, endpoint)
			answers <- answer{status, err}
		}()
	}
	var statuses []*clientv3.StatusResponse
	var failures []error
	for range endpoints {
		answer := <-answers
		if answer.err != nil {
			failures = append(failures, translate(answer.err))
			continue
		}
		statuses = append(statuses, answer.status)
	}
	if len(statuses) == 0 {
		return nil, fmt.Errorf("ask for status: %w", errors.Join(failures...))
	}
	return statuses, nil
}

// older compares two versions as etcd spells them; one that it would not spell so is never the older one.
func older(version, than string) bool {
	a, errA := semver.NewVersion(version)
	b, errB := semver.NewVersion(than)
	return errA == nil && errB == nil && a.LessThan(*b)
}
