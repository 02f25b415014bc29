package realkcp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// BinaryFolderVariable is the environment variable that names the folder of kcp's binaries.
const BinaryFolderVariable = "KCP_BIN_DIR"

// Binaries are the paths of kcp's own programs.
type Binaries struct {
	Kcp         string
	CacheServer string
	FrontProxy  string
}

// FindBinaries looks in $KCP_BIN_DIR, if set, and else on PATH.
func FindBinaries() (Binaries, error) {
	var b Binaries
	for name, path := range map[string]*string{"kcp": &b.Kcp, "cache-server": &b.CacheServer, "kcp-front-proxy": &b.FrontProxy} {
		found, err := find(name)
		if err != nil {
			return Binaries{}, fmt.Errorf("find %s, which a real kcp needs, in $%s or on PATH: %w", name, BinaryFolderVariable, err)
		}
		*path = found
	}
	return b, nil
}

func find(name string) (string, error) {
	if folder := os.Getenv(BinaryFolderVariable); folder != "" {
		name = filepath.Join(folder, name)
	}
	return exec.LookPath(name)
}
