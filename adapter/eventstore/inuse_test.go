package eventstoreadapter_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/internal/traits"
	"github.com/graspsync/graspsync/nip34"
)

// sqlServer is a database server of which only the locks work, as those of the real ones do: they last as long as a connection.
type sqlServer struct {
	version string // of PostgreSQL or MySQL
	path    string // of SQLite

	mu     sync.Mutex
	holder *sqlConn // guarded by mu
	conns  int      // guarded by mu
}

func (s *sqlServer) Connect(context.Context) (driver.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns++
	return &sqlConn{server: s, name: fmt.Sprintf("connection %d", s.conns)}, nil
}

func (*sqlServer) Driver() driver.Driver { return nil }

// kill ends the connection that has the lock, and gives the lock to another server.
func (s *sqlServer) kill(other *sqlConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder.dead = true
	s.holder = other
}

// sqlConn is a connection. All is guarded by the server's mu.
type sqlConn struct {
	server *sqlServer
	name   string
	dead   bool
}

func (*sqlConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (*sqlConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }

func (c *sqlConn) Close() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.server.holder == c {
		c.server.holder = nil
	}
	return nil
}

func (c *sqlConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	isMySQL := strings.Contains(s.version, "MariaDB")
	switch has := func(text string) bool { return strings.Contains(query, text) }; {
	case c.dead:
		return nil, errors.New("connection reset by peer")
	case has("version()") && s.version != "":
		return &sqlRows{s.version}, nil
	case has("pragma_database_list") && s.path != "":
		return &sqlRows{s.path}, nil
	case has("pg_try_advisory_lock") && !isMySQL, has("GET_LOCK") && isMySQL:
		if s.holder == nil {
			if s.holder = c; !isMySQL { // which gives connections no names
				c.name = fmt.Sprint(args[0].Value)
			}
		}
		return &sqlRows{s.holder == c}, nil
	case has("pg_locks") && !isMySQL, has("IS_USED_LOCK") && isMySQL:
		if s.holder == nil {
			return &sqlRows{}, nil
		}
		return &sqlRows{s.holder.name}, nil
	}
	return nil, fmt.Errorf("syntax error: %s", query)
}

// sqlRows is an answer of one value, or of none.
type sqlRows []driver.Value

func (*sqlRows) Columns() []string { return []string{"value"} }
func (*sqlRows) Close() error      { return nil }

func (r *sqlRows) Next(dest []driver.Value) error {
	if len(*r) == 0 {
		return io.EOF
	}
	dest[0], *r = (*r)[0], nil
	return nil
}

// sqlBackend embeds its database as the SQL backends of the eventstore module do.
type sqlBackend struct {
	eventstore.Store
	*sql.DB
}

func (b sqlBackend) Close() { _ = b.DB.Close() }

// backend returns a backend of another process: it has connections of its own.
func (s *sqlServer) backend(t *testing.T) sqlBackend {
	slice := &slicestore.SliceStore{}
	require.NoError(t, slice.Init())
	b := sqlBackend{slice, sql.OpenDB(s)}
	t.Cleanup(b.Close)
	return b
}

// sqlServers are the kinds of SQL database.
func sqlServers(t *testing.T) map[string]*sqlServer {
	return map[string]*sqlServer{
		"postgresql": {version: "PostgreSQL 15.18 (Debian)"},
		"mysql":      {version: "10.11.19-MariaDB"},
		"sqlite3":    {path: filepath.Join(t.TempDir(), "events.db")},
	}
}

// A second server on one SQL database does not start, and names the first one.
func TestCaseC17_SecondServer(t *testing.T) {
	identity, err := nip34.ParseIdentity("wss://grasp.example.com")
	require.NoError(t, err)
	for name, server := range sqlServers(t) {
		t.Run(name, func(t *testing.T) {
			start := func() (*khatruadapter.Sync, error) {
				return khatruadapter.New(khatru.NewRelay(), server.backend(t), identity, khatruadapter.Config{})
			}
			first, err := start()
			require.NoError(t, err)
			_, err = start()
			require.ErrorIs(t, err, eventstoreadapter.ErrInUse)
			holder := fmt.Sprintf("pid %d since ", os.Getpid())
			if name == "mysql" {
				holder = "connection 2" // the first one asked for the version
			}
			require.ErrorContains(t, err, holder)
			require.NoError(t, first.Writable())
			require.NoError(t, first.Close())
			second, err := start()
			require.NoError(t, err)
			require.NoError(t, second.Close())
		})
	}
}

// folderBackend is a backend that lets several processes open its folder, as lmdb does.
type folderBackend struct {
	eventstore.Store
	folder string
}

func (b folderBackend) Traits() traits.Traits {
	return traits.Traits{Page: 100, Values: 10, Folder: b.folder, Indexed: func(string, string) bool { return true }}
}

// Two servers could open one lmdb, and each broke what the other one replaced.
func TestCaseC17_SecondServerOnFolder(t *testing.T) {
	identity, err := nip34.ParseIdentity("wss://grasp.example.com")
	require.NoError(t, err)
	folder := t.TempDir()
	start := func(folder string) (*khatruadapter.Sync, error) {
		return khatruadapter.New(khatru.NewRelay(), folderBackend{&slicestore.SliceStore{}, folder}, identity, khatruadapter.Config{})
	}
	first, err := start(folder)
	require.NoError(t, err)
	_, err = start(filepath.Join(folder, "..", filepath.Base(folder)) + "/")
	require.ErrorIs(t, err, eventstoreadapter.ErrInUse)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d since ", os.Getpid()))
	require.ErrorContains(t, err, folder)
	other, err := start(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, first.Close())
	second, err := start(folder)
	require.NoError(t, err)
	require.NoError(t, second.Close())
	require.NoError(t, other.Close())
}

// A server that can't be made for another reason leaves the database to the next one.
func TestCaseC17_FailedServer(t *testing.T) {
	identity, err := nip34.ParseIdentity("wss://grasp.example.com")
	require.NoError(t, err)
	server := sqlServers(t)["postgresql"]
	var cfg khatruadapter.Config
	cfg.Sync.Limits.MaxRelaysPerRepo = -1
	_, err = khatruadapter.New(khatru.NewRelay(), server.backend(t), identity, cfg)
	require.Error(t, err)
	require.NotErrorIs(t, err, eventstoreadapter.ErrInUse)
	s, err := khatruadapter.New(khatru.NewRelay(), server.backend(t), identity, khatruadapter.Config{})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// A running server takes the lock again after its connection was lost. If another server has the lock by then, it serves nothing more.
func TestCaseC17_LostLock(t *testing.T) {
	for name, server := range sqlServers(t) {
		if name == "sqlite3" {
			continue // its lock can't be lost
		}
		t.Run(name, func(t *testing.T) {
			s, err := eventstoreadapter.New(server.backend(t), eventstoreadapter.Config{})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Close()) }()

			server.kill(nil)
			require.Eventually(t, func() bool {
				require.NoError(t, s.Writable())
				server.mu.Lock()
				defer server.mu.Unlock()
				return server.holder != nil
			}, time.Minute, 10*time.Millisecond)

			other := &sqlConn{server: server, name: "pid 7 on other.example.com"}
			server.kill(other)
			require.Eventually(t, func() bool { return s.Writable() != nil }, time.Minute, 10*time.Millisecond)
			require.ErrorIs(t, s.Writable(), eventstoreadapter.ErrInUse)
			require.ErrorContains(t, s.Writable(), "pid 7 on other.example.com")
			for _, err := range s.Events(t.Context(), nostr.Filter{}) {
				require.ErrorIs(t, err, eventstoreadapter.ErrInUse)
			}
			_, err = s.Has(t.Context(), make([]graspsync.EventID, 1))
			require.ErrorIs(t, err, eventstoreadapter.ErrInUse)

			require.NoError(t, other.Close())
			require.ErrorIs(t, s.Writable(), eventstoreadapter.ErrInUse, "the other one may have changed all")
		})
	}
}
