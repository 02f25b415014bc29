package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

// leftoversListed bounds how many keys a refusal names.
const leftoversListed = 20

// InspectOrigin reads all that a plan must know of the origin and refuses a logical cluster that cannot leave.
func (s *Shard) InspectOrigin(ctx context.Context, input InspectInput) (*OriginReport, error) {
	report := &OriginReport{TransferAddress: s.TransferAddress, Protocols: s.Protocols, ReachesCache: s.Cache != nil}
	err := heartbeating(ctx, func(ctx context.Context) error {
		if err := s.requireOwnEtcd(ctx); err != nil {
			return err
		}
		if err := s.acceptDeparture(ctx, input); err != nil {
			return err
		}
		return s.surveyOrigin(ctx, input.LogicalCluster, report)
	})
	if err != nil {
		return nil, permanentForward(err)
	}
	return report, nil
}

// requireOwnEtcd refuses a worker that was given another shard's etcd, or another shard's API servers: the tenant would be
// written where nobody serves it.
func (s *Shard) requireOwnEtcd(ctx context.Context) error {
	stored, _, err := s.readLogicalCluster(ctx, keyspace.SystemShard)
	switch {
	case errors.Is(err, ErrNotFound):
		return Refuse(WrongEtcd, "the etcd of shard %s's worker has no LogicalCluster %s under its prefix; check --etcd-endpoints and --etcd-prefix", s.Name, keyspace.SystemShard)
	case err != nil:
		return err
	case stored.Shard() != s.Name:
		return Refuse(WrongEtcd, "the etcd of shard %s's worker is shard %s's; check --shard, --etcd-endpoints and --etcd-prefix", s.Name, stored.Shard())
	}
	return s.requireOneEtcd(ctx, stored.UID())
}

// requireOneEtcd proves that the API servers and this worker have the same etcd, not one that was copied from it, say by a
// restore: a revision that the servers tell between two readings of the store's is between these.
func (s *Shard) requireOneEtcd(ctx context.Context, uid string) error {
	before, err := s.Store.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read revision of shard %s: %w", s.Name, err)
	}
	served, err := s.API.Identity(ctx)
	if err != nil {
		return fmt.Errorf("read LogicalCluster %s through the API of shard %s: %w", keyspace.SystemShard, s.Name, err)
	}
	after, err := s.Store.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read revision of shard %s: %w", s.Name, err)
	}
	switch {
	case served.UID != uid:
		return Refuse(WrongEtcd, "the API servers and the etcd of shard %s's worker are not of one shard: the UID of %s is %s there and %s here; check --kubeconfig, --etcd-endpoints and --etcd-prefix",
			s.Name, keyspace.SystemShard, served.UID, uid)
	case served.Revision < before || served.Revision > after:
		return Refuse(WrongEtcd, "the API servers of shard %s have another etcd than its worker, one of them a copy: it is at revision %d there and at %d to %d here; check --etcd-endpoints, and --kubeconfig",
			s.Name, served.Revision, before, after)
	}
	return nil
}

// acceptDeparture refuses a logical cluster that somebody else has hold of.
func (s *Shard) acceptDeparture(ctx context.Context, input InspectInput) error {
	claim, err := s.Store.ReadClaim(ctx, input.LogicalCluster)
	if err == nil && claim.Token.Run() != input.RunID {
		return s.refuseClaimed(input.LogicalCluster, claim)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read claim of %s on shard %s: %w", input.LogicalCluster, s.Name, err)
	}
	parsed, _, err := s.readLogicalCluster(ctx, input.LogicalCluster)
	if errors.Is(err, ErrNotFound) {
		return Refuse(LogicalClusterNotFound, "shard %s has no LogicalCluster %s in its etcd; check that this worker's etcd and storage prefix are that shard's", s.Name, input.LogicalCluster)
	}
	if err != nil {
		return err
	}
	switch {
	case parsed.BeingDeleted():
		return Refuse(BeingDeleted, "logical cluster %s is being deleted; let the deletion end", input.LogicalCluster)
	case parsed.NativeMigration() != "":
		return Refuse(AlreadyMigrating, "logical cluster %s is held by kcp's own migration %s; let it end or delete that object", input.LogicalCluster, parsed.NativeMigration())
	case parsed.Inactive() || parsed.Phase() != objects.PhaseReady:
		return Refuse(NotReady, "logical cluster %s has phase %q, inactive annotation %t; it can be moved when it is Ready", input.LogicalCluster, parsed.Phase(), parsed.Inactive())
	}
	return nil
}

func (s *Shard) refuseClaimed(logicalCluster string, claim Claim) error {
	return Refuse(AlreadyMigrating, "logical cluster %s is claimed on shard %s by workflow %s (run %s, from %s to %s); follow it with `kcp-migrate status %s` or, where that workflow is no more, see `kcp-migrate recover %s`",
		logicalCluster, s.Name, claim.WorkflowID, claim.RunID, claim.OriginShard, claim.DestinationShard, claim.WorkflowID, logicalCluster)
}

func (s *Shard) surveyOrigin(ctx context.Context, logicalCluster string, report *OriginReport) error {
	var err error
	if report.Health, report.Version, report.SigningKeys, err = s.surveyShard(ctx); err != nil {
		return err
	}
	serving := func(ctx context.Context) []Probe { return s.API.ProbeServing(ctx, logicalCluster) }
	if err := s.requireServers(ctx, serving); err != nil {
		return err
	}
	if report.Contents, err = s.API.Contents(ctx, logicalCluster); err != nil {
		return fmt.Errorf("read contents of %s on shard %s: %w", logicalCluster, s.Name, err)
	}
	if missing, err := s.missingCRDs(ctx, report.Contents.SchemaUIDs()); err != nil || len(missing) > 0 {
		return s.refuseMissingCRDs(err, missing, report.Contents)
	}
	if report.Digest, err = s.Store.Digest(ctx, logicalCluster, report.Health.Revision); err != nil {
		return fmt.Errorf("digest %s on shard %s: %w", logicalCluster, s.Name, err)
	}
	report.Entries, report.Bytes = report.Digest.Totals()
	report.LeasedEntries = int64(len(report.Digest.Leased))
	report.Encrypted = s.Store.Encrypted(report.Digest.Names())
	return nil
}

// SchemaUIDs are the schemas that the bound resources need, each once.
func (c Contents) SchemaUIDs() []string {
	var uids []string
	for _, bound := range c.Bindings {
		if !slices.Contains(uids, bound.SchemaUID) {
			uids = append(uids, bound.SchemaUID)
		}
	}
	return uids
}

func (s *Shard) refuseMissingCRDs(err error, missing []string, contents Contents) error {
	if err != nil {
		return err
	}
	for _, bound := range contents.Bindings {
		if bound.SchemaUID == missing[0] {
			return Refuse(BoundResourceMissing, "APIBinding %s binds %s.%s by schema %s, but shard %s has no CRD of it; mend the binding first",
				bound.Binding, bound.Resource, bound.Group, bound.SchemaUID, s.Name)
		}
	}
	return fmt.Errorf("no binding names schema %s", missing[0])
}

// missingCRDs are those of the schemas that this shard has no bound CRD of.
func (s *Shard) missingCRDs(ctx context.Context, schemaUIDs []string) ([]string, error) {
	present, err := s.Store.BoundCRDs(ctx, schemaUIDs)
	if err != nil {
		return nil, fmt.Errorf("read bound CRDs on shard %s: %w", s.Name, err)
	}
	var missing []string
	for _, uid := range schemaUIDs {
		if _, found := present[uid]; !found {
			missing = append(missing, uid)
		}
	}
	return missing, nil
}

func (s *Shard) surveyShard(ctx context.Context) (StoreHealth, Version, string, error) {
	health, err := s.Store.Health(ctx)
	if err != nil {
		return health, Version{}, "", fmt.Errorf("check etcd of shard %s: %w", s.Name, err)
	}
	version, err := s.API.Version(ctx)
	if err != nil {
		return health, version, "", fmt.Errorf("read kcp version of shard %s: %w", s.Name, err)
	}
	keys, err := s.API.SigningKeys(ctx)
	if err != nil {
		return health, version, "", fmt.Errorf("read service-account keys of shard %s: %w", s.Name, err)
	}
	return health, version, keys, nil
}

// requireServers refuses to begin while one of the shard's API servers does not answer: nothing can be proven
// through it later. Another move's fence may blind a shard for a moment, which is waited for.
func (s *Shard) requireServers(ctx context.Context, probe func(context.Context) []Probe) error {
	if reason := failing(s.probeFor(ctx, nudgeAtMost, probe)); reason != "" {
		return fmt.Errorf("not every API server of shard %s serves: %s", s.Name, reason)
	}
	return nil
}

// InspectDestination reads all that a plan must know of the destination.
func (s *Shard) InspectDestination(ctx context.Context, input InspectInput) (*DestinationReport, error) {
	report := &DestinationReport{Protocols: s.Protocols}
	err := heartbeating(ctx, func(ctx context.Context) error {
		if err := s.requireOwnEtcd(ctx); err != nil {
			return err
		}
		return s.surveyDestination(ctx, input, report)
	})
	if err != nil {
		return nil, permanentForward(err)
	}
	return report, nil
}

func (s *Shard) surveyDestination(ctx context.Context, input InspectInput, report *DestinationReport) error {
	claim, err := s.Store.ReadClaim(ctx, input.LogicalCluster)
	if err == nil && claim.Token.Run() != input.RunID {
		return s.refuseClaimed(input.LogicalCluster, claim)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read claim of %s on shard %s: %w", input.LogicalCluster, s.Name, err)
	}
	if report.Health, report.Version, report.SigningKeys, err = s.surveyShard(ctx); err != nil {
		return err
	}
	if err := s.requireServers(ctx, s.API.ProbeWildcard); err != nil {
		return err
	}
	if report.MissingCRDs, err = s.missingCRDs(ctx, input.SchemaUIDs); err != nil {
		return err
	}
	written := append(input.Families, keyspace.LogicalClusters, keyspace.CustomResourceDefinitions)
	if err := s.Store.CheckEncryption(ctx, written); err != nil {
		return fmt.Errorf("check encryption on shard %s: %w", s.Name, err)
	}
	report.Encrypted = s.Store.Encrypted(input.Families)
	if report.Leftovers, err = s.Store.Keys(ctx, input.LogicalCluster, leftoversListed); err != nil {
		return fmt.Errorf("list keys of %s on shard %s: %w", input.LogicalCluster, s.Name, err)
	}
	_, err = s.Store.LogicalCluster(ctx, input.LogicalCluster)
	report.HasLogicalCluster = err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read LogicalCluster %s on shard %s: %w", input.LogicalCluster, s.Name, err)
	}
	return nil
}
