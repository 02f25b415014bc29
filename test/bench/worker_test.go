package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWork_WhenItsContenderIsUnknown_SaysSoToTheBench(t *testing.T) {
	var answers strings.Builder
	require.ErrorContains(t, work(t.Context(), strings.NewReader(`{"contender":"nobody"}`), &answers), "unknown contender")
	var only answer
	require.NoError(t, json.Unmarshal([]byte(answers.String()), &only))
	require.Contains(t, only.Problem, "nobody")
}
