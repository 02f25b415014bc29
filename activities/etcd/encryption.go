package etcd

import (
	"bytes"
	"context"
	"crypto/aes"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	identitytransformer "k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
)

// How the API server marks what it has encrypted: k8s:enc:<provider>:<version>:<key name>:, and nothing it stores in
// the clear begins so (k8s.io/apiserver/pkg/server/options/encryptionconfig).
const (
	encryptedPrefix = "k8s:enc:"
	// markParts are those of the mark, and the value behind it.
	markParts = 6
	// coreGroup is how kcp's keys spell the group that an EncryptionConfiguration leaves empty.
	coreGroup = "core"
)

// Encryption is how a shard's API servers encrypt values at rest. A nil one leaves everything in the clear.
type Encryption struct {
	rules map[schema.GroupResource][]provider
}

// provider is a provider with one of its keys.
type provider struct {
	name string
	// mark is what begins all that it has encrypted; it is empty for identity.
	mark        []byte
	transformer value.Transformer
}

// inTheClear is the provider identity.
var inTheClear = []provider{{name: "identity", transformer: identitytransformer.NewEncryptCheckTransformer()}}

// providers gives those of a family's resource: all that may have encrypted its values, and first the one that does.
// The most special rule counts, whatever their order, as in the API server's transformerFromOverrides.
func (e *Encryption) providers(family keyspace.Family) []provider {
	if e == nil {
		return inTheClear
	}
	group := family.Group
	if group == coreGroup {
		group = ""
	}
	for _, rule := range []schema.GroupResource{
		{Group: group, Resource: family.Resource}, {Group: group, Resource: "*"}, {Group: "*", Resource: "*"},
	} {
		if providers, found := e.rules[rule]; found {
			return providers
		}
	}
	return inTheClear
}

// encrypts tells whether the API servers encrypt what they write of a family.
func (e *Encryption) encrypts(family keyspace.Family) bool {
	return len(e.providers(family)[0].mark) > 0
}

// decrypt gives the plaintext of a family's value. ErrEncrypted: no configured provider reads it.
func (e *Encryption) decrypt(ctx context.Context, family keyspace.Family, key string, stored []byte) ([]byte, error) {
	providers := e.providers(family)
	for _, provider := range providers {
		encrypted, marked := bytes.CutPrefix(stored, provider.mark)
		if !marked {
			continue
		}
		// Whatever fails may be another provider's, or another key of the same name; the reasons that the API
		// server's transformers give say less than the mark does.
		plaintext, _, err := provider.transformer.TransformFromStorage(ctx, encrypted, authenticated(key))
		if err == nil {
			return plaintext, nil
		}
	}
	return nil, fmt.Errorf("decrypt %s: %w: %s", key, activities.ErrEncrypted, misfit(providers, stored))
}

// encrypt gives what to store of a family's value: what the API servers would.
func (e *Encryption) encrypt(ctx context.Context, family keyspace.Family, key string, plaintext []byte) ([]byte, error) {
	provider := e.providers(family)[0]
	encrypted, err := provider.transformer.TransformToStorage(ctx, plaintext, authenticated(key))
	if err != nil {
		return nil, fmt.Errorf("encrypt %s with provider %s: %w", key, provider.name, err)
	}
	if len(provider.mark) == 0 {
		return encrypted, nil
	}
	return slices.Concat(provider.mark, encrypted), nil
}

// authenticated binds a value to its whole key, as the API server does (authenticatedDataString in
// k8s.io/apiserver/pkg/storage/etcd3/store.go): a value that is copied as it is cannot be read elsewhere.
func authenticated(key string) value.Context { return value.DefaultContext(key) }

// misfit says why none of the providers reads a value, by the value's mark alone.
func misfit(providers []provider, stored []byte) string {
	if !bytes.HasPrefix(stored, []byte(encryptedPrefix)) {
		return "it is in the clear, and identity is not among the providers of its resource"
	}
	parts := bytes.SplitN(stored, []byte(":"), markParts)
	name := string(parts[2])
	if len(parts) < markParts || !slices.Contains([]string{aesCBC, aesGCM, secretBox, kms}, name) {
		return "it was encrypted by an unknown provider"
	}
	mark := stored[:len(stored)-len(parts[markParts-1])]
	if slices.ContainsFunc(providers, func(p provider) bool { return bytes.Equal(p.mark, mark) }) {
		return fmt.Sprintf("key %q of provider %s is another one than it was encrypted with", parts[4], name)
	}
	return fmt.Sprintf("it was encrypted with key %q of provider %s, which its resource does not have", parts[4], name)
}

var errNotItsPlaintext = errors.New("key does not fit")

// checkedCBC makes up for what AES-CBC lacks: nothing in the value proves the key. A wrong one is noticed by the
// padding, but for one value in 256, whose garbage would be moved.
type checkedCBC struct{ value.Transformer }

// TransformFromStorage also keeps from the API server's transformer what makes it panic: a value without a block.
func (c checkedCBC) TransformFromStorage(ctx context.Context, encrypted []byte, at value.Context) ([]byte, bool, error) {
	if len(encrypted) < 2*aes.BlockSize {
		return nil, false, errNotItsPlaintext
	}
	plaintext, stale, err := c.Transformer.TransformFromStorage(ctx, encrypted, at)
	if err == nil && !isObject(plaintext) {
		err = errNotItsPlaintext
	}
	return plaintext, stale, err
}

// isObject tells what the API server stores from garbage: JSON, protobuf or CBOR, by their first bytes
// (k8s.io/apimachinery/pkg/runtime/serializer).
func isObject(plaintext []byte) bool {
	for _, begin := range []string{`{"`, "k8s\x00", "\xd9\xd9\xf7"} {
		if bytes.HasPrefix(plaintext, []byte(begin)) {
			return true
		}
	}
	return false
}
