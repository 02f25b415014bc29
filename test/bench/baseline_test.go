package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDump_EncodesValuesAsBase64UnderKcpsNames(t *testing.T) {
	var dump logicalClusterDump
	dump.Spec.Continue = "core/secrets"
	dump.Status = dumpPage{Entries: []dumpEntry{{Key: "core/secrets/t/default/a", Value: []byte("hi")}}, Continue: "core/secrets/t/default/b"}
	encoded, err := json.Marshal(dump)
	require.NoError(t, err)
	require.JSONEq(t, `{"spec":{"continue":"core/secrets"},"status":{"entries":[{"key":"core/secrets/t/default/a","value":"aGk="}],
		"continue":"core/secrets/t/default/b"}}`, string(encoded))
}

func TestDumpPage_WhenItHasAsManyEntriesAsItMay_ContinuesAtTheNext(t *testing.T) {
	var page dumpPage
	for i := range dumpLimit {
		require.True(t, page.add(dumpEntry{Key: fmt.Sprint(i)}))
	}
	require.False(t, page.add(dumpEntry{Key: "next"}))
	require.Len(t, page.Entries, dumpLimit)
	require.Equal(t, "next", page.Continue)
}

func TestDumpPage_WhenAValueDoesNotFit_ContinuesAtIt_UnlessItIsTheFirst(t *testing.T) {
	var page dumpPage
	require.True(t, page.add(dumpEntry{Key: "a", Value: make([]byte, dumpMaxBytes+1)}))
	require.False(t, page.add(dumpEntry{Key: "b", Value: []byte("x")}))
	require.Equal(t, "b", page.Continue)
}
