package etcd

import (
	"crypto/aes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
	"sigs.k8s.io/yaml"
)

// The providers, as configuration and marks spell them.
const (
	aesCBC    = "aescbc"
	aesGCM    = "aesgcm"
	secretBox = "secretbox"
	kms       = "kms"

	secretBoxKeyBytes = 32
)

// LoadEncryption reads the EncryptionConfiguration that a shard's API servers are started with. It is put together here
// and not by k8s.io/apiserver/pkg/server/options/encryptionconfig, which would bring half an API server along and
// fails without naming provider and key. What is gone without it is KMS. No error tells anything of a key but its name.
func LoadEncryption(file string) (*Encryption, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load EncryptionConfiguration: %w", err)
	}
	encryption, err := parseEncryption(content)
	if err != nil {
		return nil, fmt.Errorf("load EncryptionConfiguration from %s: %w", file, err)
	}
	return encryption, nil
}

func parseEncryption(content []byte) (*Encryption, error) {
	var config apiserverv1.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return nil, err
	}
	switch config.GroupVersionKind() {
	case apiserverv1.SchemeGroupVersion.WithKind("EncryptionConfiguration"):
	case schema.GroupVersionKind{Version: "v1", Kind: "EncryptionConfig"}: // which the API server takes too
	default:
		return nil, fmt.Errorf("it is %q of apiVersion %q", config.Kind, config.APIVersion)
	}
	if len(config.Resources) == 0 {
		return nil, errors.New("resources are missing")
	}
	encryption := &Encryption{rules: map[schema.GroupResource][]provider{}}
	for i, rule := range config.Resources {
		if err := encryption.add(rule); err != nil {
			return nil, fmt.Errorf("resources[%d]: %w", i, err)
		}
	}
	return encryption, nil
}

func (e *Encryption) add(rule apiserverv1.ResourceConfiguration) error {
	var providers []provider
	for i, configured := range rule.Providers {
		keyed, err := providersOf(configured)
		if err != nil {
			return fmt.Errorf("providers[%d]: %w", i, err)
		}
		providers = append(providers, keyed...)
	}
	if len(providers) == 0 || len(rule.Resources) == 0 {
		return errors.New("resources or providers are missing")
	}
	for _, resource := range rule.Resources {
		matched := schema.ParseGroupResource(resource)
		e.rules[matched] = append(e.rules[matched], providers...)
	}
	return nil
}

// providersOf gives one for each key.
func providersOf(configured apiserverv1.ProviderConfiguration) ([]provider, error) {
	kinds := 0
	for _, given := range []bool{
		configured.AESCBC != nil, configured.AESGCM != nil, configured.Secretbox != nil, configured.Identity != nil, configured.KMS != nil,
	} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return nil, fmt.Errorf("%d providers in one element, want one", kinds)
	}
	switch {
	case configured.AESCBC != nil:
		return withKeys(aesCBC, configured.AESCBC.Keys, newCBC)
	case configured.AESGCM != nil:
		return withKeys(aesGCM, configured.AESGCM.Keys, newGCM)
	case configured.Secretbox != nil:
		return withKeys(secretBox, configured.Secretbox.Keys, newSecretBox)
	case configured.Identity != nil:
		return inTheClear, nil
	default:
		return nil, fmt.Errorf("provider kms (%q) is not supported: a worker cannot ask a key management service", configured.KMS.Name)
	}
}

func withKeys(name string, keys []apiserverv1.Key, transformer func(secret []byte) (value.Transformer, error)) ([]provider, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s: keys are missing", name)
	}
	providers := make([]provider, len(keys))
	for i, key := range keys {
		if key.Name == "" || key.Secret == "" {
			return nil, fmt.Errorf("%s: keys[%d]: name or secret is missing", name, i)
		}
		secret, err := base64.StdEncoding.DecodeString(key.Secret)
		if err != nil {
			return nil, fmt.Errorf("%s: key %q: its secret is not in base64", name, key.Name)
		}
		providers[i] = provider{name: name, mark: []byte(encryptedPrefix + name + ":v1:" + key.Name + ":")}
		if providers[i].transformer, err = transformer(secret); err != nil {
			return nil, fmt.Errorf("%s: key %q: %w", name, key.Name, err)
		}
	}
	return providers, nil
}

func newCBC(secret []byte) (value.Transformer, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return checkedCBC{aestransformer.NewCBCTransformer(block)}, nil
}

func newGCM(secret []byte) (value.Transformer, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	return aestransformer.NewGCMTransformer(block)
}

func newSecretBox(secret []byte) (value.Transformer, error) {
	if len(secret) != secretBoxKeyBytes {
		return nil, fmt.Errorf("invalid key size %d", len(secret))
	}
	return secretbox.NewSecretboxTransformer([secretBoxKeyBytes]byte(secret)), nil
}
