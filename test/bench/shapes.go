package main

import (
	"encoding/hex"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/kcp-migrate/kcp-migrate/activities"
	"github.com/kcp-migrate/kcp-migrate/activities/keyspace"
	"github.com/kcp-migrate/kcp-migrate/activities/objects"
)

const (
	// tenant is the logical cluster that is moved; neighbours' names come before and behind it.
	tenant = "m-tenant"
	// token is that of the one move that every repetition plays.
	token = activities.Token("bench/1")

	neighbourFamilies = 300
	neighbourBytes    = 1000
	// neighbourKeys is what one neighbour has: a key in each of the families, and as many again in two common ones.
	neighbourKeys = 1000
)

// shape is what a tenant looks like.
type shape struct {
	Name       string `json:"name"`
	Entries    int    `json:"entries"`
	ValueBytes int    `json:"valueBytes"`
	Families   int    `json:"families"`
	// BaselineRepetitions bounds how often the baseline, which takes minutes with some shapes, plays it; 0 for no bound.
	BaselineRepetitions int `json:"baselineRepetitions,omitempty"`
}

// Names of shapes that bars ask for.
const (
	small   = "5,000 × 1 kB"
	medium  = "50,000 × 1 kB"
	many    = "300,000 × 100 B"
	large   = "1,000 × 500 kB"
	spread  = "100,000 × 1 kB in 300 families"
	light   = "100 MB of 500 kB"
	heavy   = "1 GB of 500 kB"
	nobody  = 0
	crowded = 250_000
)

// contest are the shapes that every contender plays.
var contest = []shape{
	{Name: small, Entries: 5_000, ValueBytes: 1000, Families: 1},
	{Name: medium, Entries: 50_000, ValueBytes: 1000, Families: 1},
	{Name: many, Entries: 300_000, ValueBytes: 100, Families: 1, BaselineRepetitions: 2},
	{Name: large, Entries: 1_000, ValueBytes: 500_000, Families: 1, BaselineRepetitions: 1},
	{Name: spread, Entries: 100_000, ValueBytes: 1000, Families: 300, BaselineRepetitions: 3},
}

// weights are the shapes that show how much memory a worker takes.
var weights = []shape{
	{Name: light, Entries: 200, ValueBytes: 500_000, Families: 1},
	{Name: heavy, Entries: 2_000, ValueBytes: 500_000, Families: 1},
}

// bytes are the values' alone.
func (s shape) bytes() int64 { return int64(s.Entries) * int64(s.ValueBytes) }

// families are the tenant's, its LogicalCluster's left out.
func (s shape) families() []keyspace.Family {
	if s.Families == 1 {
		return []keyspace.Family{configMaps}
	}
	families := make([]keyspace.Family, s.Families)
	for i := range families {
		families[i] = customFamily(i)
	}
	return families
}

var (
	configMaps = keyspace.Family{Group: "core", Resource: "configmaps"}
	secrets    = keyspace.Family{Group: "core", Resource: "secrets"}
)

func customFamily(number int) keyspace.Family {
	return keyspace.Family{Group: fmt.Sprintf("group-%03d.example.com", number), Resource: "things", Segment: keyspace.CustomResources}
}

// content is keys and values to be put.
type content = iter.Seq2[string, string]

// content is the tenant's entries.
func (s shape) content() content {
	families, values := s.families(), newValues(s.ValueBytes)
	return func(yield func(string, string) bool) {
		for i := range s.Entries {
			if !yield(entryKey(families[i%len(families)], tenant, i), values.next()) {
				return
			}
		}
	}
}

var layout = keyspace.NewLayout("")

func entryKey(family keyspace.Family, logicalCluster string, number int) string {
	return layout.Key(keyspace.Entry{Family: family, LogicalCluster: logicalCluster, Suffix: fmt.Sprintf("default/entry-%07d", number)})
}

// fencedLogicalCluster is the tenant's object as a move that has fenced it has it on either shard: nothing is copied or verified
// without.
func fencedLogicalCluster() (string, error) {
	parsed, err := objects.ParseLogicalCluster([]byte(`{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster"}}`))
	if err != nil {
		return "", err
	}
	parsed.Enclose(string(token), "origin")
	encoded, err := parsed.Encode()
	return string(encoded), err
}

// neighbours are so many keys of other logical clusters, in the families that the tenants of all shapes use.
func neighbours(count int) content {
	values := newValues(neighbourBytes)
	return func(yield func(string, string) bool) {
		for i := range count {
			number := i / neighbourKeys
			name := fmt.Sprintf("%c-neighbour-%04d", 'a'+number%26, number)
			if !yield(entryKey(neighbourFamily(i%neighbourKeys), name, i), values.next()) {
				return
			}
		}
	}
}

func neighbourFamily(key int) keyspace.Family {
	switch {
	case key < neighbourFamilies:
		return customFamily(key)
	case key%2 == 0:
		return configMaps
	default:
		return secrets
	}
}

// values are of one size and all different, cut from one pool of random hex digits.
type values struct {
	pool string
	size int
	at   int
}

func newValues(size int) *values {
	random := rand.NewChaCha8([32]byte{})
	pool := make([]byte, size+1<<20)
	_, _ = random.Read(pool) // never fails
	return &values{pool: hex.EncodeToString(pool), size: size}
}

func (v *values) next() string {
	v.at = (v.at + 13) % (len(v.pool) - v.size)
	return v.pool[v.at : v.at+v.size]
}
