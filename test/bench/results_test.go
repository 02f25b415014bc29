package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSave_DrawsWhatWasMeasured_AndNothingElse(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, wholeRun().save(folder))
	drawn, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	require.NoError(t, err)
	require.Len(t, drawn, 5)
	var out strings.Builder
	require.NoError(t, wholeRun().print(&out))
	require.Contains(t, out.String(), "among neighbours")

	empty := t.TempDir()
	require.NoError(t, results{}.save(empty))
	files, err := os.ReadDir(empty)
	require.NoError(t, err)
	require.Len(t, files, 1, "results.json alone")
}
