package installation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseProcessorTime_AddsUserAndSystemTime_WhateverTheProgramIsCalled(t *testing.T) {
	used, err := parseProcessorTime("42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 1 1 1")
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, used)
	_, err = parseProcessorTime("42 (short) S 1")
	require.Error(t, err)
}

func TestParseMemory_ReadsKilobytes(t *testing.T) {
	bytes, err := parseMemory("VmPeak:\t  99 kB\nVmHWM:\t    2048 kB\nRssAnon:\t 1 kB\n", PeakMemory)
	require.NoError(t, err)
	require.Equal(t, int64(2<<20), bytes)
	_, err = parseMemory("Name:\tx\n", PeakMemory)
	require.Error(t, err)
}
