package worker

import (
	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/etcd"
)

// encryption is how the shard's API servers encrypt values at rest; nil where they do not.
func (c *Config) encryption() (*etcd.Encryption, error) {
	if c.EncryptionProviderConfig == "" {
		return nil, nil
	}
	encryption, err := etcd.LoadEncryption(c.EncryptionProviderConfig)
	if err != nil {
		return nil, activities.Refuse(activities.InvalidInput, "use --encryption-provider-config: %v", err)
	}
	return encryption, nil
}
