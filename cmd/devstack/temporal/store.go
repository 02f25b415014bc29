package temporalserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/config"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// Namespace is the one namespace there is.
	Namespace = "default"

	// retention keeps finished moves in the UI for a week; the server's own default is a day.
	retention = 7 * 24 * time.Hour
)

// SearchAttributes are registered in the namespace, for moves to be found by.
var SearchAttributes = map[string]enums.IndexedValueType{
	"KcpLogicalCluster":   enums.INDEXED_VALUE_TYPE_KEYWORD,
	"KcpOriginShard":      enums.INDEXED_VALUE_TYPE_KEYWORD,
	"KcpDestinationShard": enums.INDEXED_VALUE_TYPE_KEYWORD,
	"KcpMigrationPhase":   enums.INDEXED_VALUE_TYPE_KEYWORD,
}

// store is the SQLite database that the server keeps all its state in.
type store struct {
	file string
	sql  *config.SQL
}

func newStore(file string) store {
	if file == "" {
		return store{sql: &config.SQL{
			PluginName:        sqliteplugin.PluginName,
			DatabaseName:      "devstack-" + uuid.NewString(),
			ConnectAttributes: map[string]string{"mode": "memory", "cache": "shared"},
		}}
	}
	return store{file: file, sql: &config.SQL{
		PluginName:   sqliteplugin.PluginName,
		DatabaseName: file,
		ConnectAttributes: map[string]string{
			"mode": "rwc", "journal_mode": "wal", "synchronous": "normal",
		},
	}}
}

// prepare creates what is not there yet: the tables of a new file, and the namespace.
// The plugin creates an in-memory database's tables by itself.
func (s store) prepare() error {
	if s.file != "" {
		if err := s.createTables(); err != nil {
			return err
		}
	}
	namespace, err := sqlite.NewNamespaceConfig(clusterName, Namespace, false /* global */, SearchAttributes)
	if err != nil {
		return fmt.Errorf("configure Temporal namespace %s: %w", Namespace, err)
	}
	namespace.Detail.Config.Retention = durationpb.New(retention)
	if err := sqlite.CreateNamespaces(s.sql, namespace); err != nil {
		return fmt.Errorf("create Temporal namespace %s: %w", Namespace, err)
	}
	return nil
}

func (s store) createTables() error {
	if _, err := os.Stat(s.file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := sqlite.SetupSchema(s.sql); err != nil {
		return fmt.Errorf("create tables in %s: %w", s.file, err)
	}
	return nil
}

// lockFile keeps a second server away from the file: SQLite would let it in, to the harm of both.
func lockFile(file string) (*flock.Flock, error) {
	if file == "" {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	lock := flock.New(file + ".lock")
	locked, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	if !locked {
		return nil, fmt.Errorf("lock %s: another Temporal server uses it", file)
	}
	return lock, nil
}
