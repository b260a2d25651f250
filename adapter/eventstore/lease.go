package eventstoreadapter

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fiatjaf/eventstore"

	"github.com/graspsync/graspsync/internal/filelock"
)

// ErrInUse is wrapped by the error of [New] if another Store, of this process or of another one, uses the same SQL database, or
// the same folder of lmdb.
// The error names the other process. If the database gave the lock of a running Store to another one, for example after a
// failover, all methods of the Store fail with ErrInUse from then on.
var ErrInUse = errors.New("another server uses the database")

const (
	// leaseCheck is how often a Store checks that it still has its lock.
	leaseCheck = time.Second
	// leaseTimeout bounds one check, and the start.
	leaseTimeout = 5 * time.Second
	// leaseTries is how often New tries to get the lock, leasePause apart: a database needs a moment to release the lock of a
	// process that was killed.
	leaseTries = 20
	leasePause = 100 * time.Millisecond
)

// sqlBackend is a backend on a SQL database: the backends of the eventstore module embed a *sqlx.DB.
type sqlBackend interface {
	Conn(ctx context.Context) (*sql.Conn, error)
	Stats() sql.DBStats
}

// lockQueries are the queries for a lock that lasts as long as its connection.
type lockQueries struct {
	take   string // returns whether it has taken the lock; its argument names the process
	holder string // returns the name of the connection that has the lock
}

// postgresLocks locks the table of events: schemas of one database may have one each. A server that vanished from the network
// loses the lock after a minute.
var postgresLocks = lockQueries{
	take: `SELECT pg_try_advisory_lock(1735549299::bigint << 32 | 'event'::regclass::oid::bigint)
		AND set_config('application_name', $1, false) <> '' AND set_config('tcp_keepalives_idle', '30', false) <> ''
		AND set_config('tcp_keepalives_interval', '10', false) <> '' AND set_config('tcp_keepalives_count', '3', false) <> ''`,
	holder: `SELECT format('%s (backend %s)', application_name, pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND granted AND classid = 1735549299 AND objid = 'event'::regclass AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
}

// mysqlLocks locks the name of the database, because MySQL has one set of locks for all databases of a server.
var mysqlLocks = lockQueries{
	take: `SELECT GET_LOCK(CONCAT('graspsync ', MD5(DATABASE())), 0) AND ? <> ''`,
	holder: `SELECT CONCAT_WS(' at ', CONCAT('connection ', held.id), host) FROM information_schema.processlist AS list
		RIGHT JOIN (SELECT IS_USED_LOCK(CONCAT('graspsync ', MD5(DATABASE()))) AS id) AS held ON list.id = held.id`,
}

// lease is the exclusive use of a SQL database, or of a folder of lmdb. The lease of any other backend does nothing. It is safe
// for concurrent use.
type lease struct {
	db      sqlBackend // nil for other backends
	queries lockQueries

	mu sync.Mutex
	// guarded by mu
	file    *os.File  // of SQLite and lmdb, locked
	conn    *sql.Conn // of other databases, has the lock; nil if the connection was lost
	holder  string    // the name of conn
	checked time.Time
	err     error // of the last check
}

// newLease takes the exclusive use of a backend's database. Folder is that of lmdb.
func newLease(backend eventstore.Store, folder string) (*lease, error) {
	l := &lease{}
	if folder != "" {
		return l, l.lockFile(filepath.Join(folder, "graspsync-lock"))
	}
	db, ok := backend.(sqlBackend)
	if !ok {
		return l, nil
	}
	return l, protect(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
		defer cancel()
		return l.start(ctx, db)
	})
}

func (l *lease) start(ctx context.Context, db sqlBackend) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBackend, err)
	}
	defer func() { _ = conn.Close() }() // it goes back to the pool
	var version, path string
	if err := conn.QueryRowContext(ctx, "SELECT version()").Scan(&version); err != nil { // SQLite has no such function
		if conn.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path) == nil && path != "" {
			return l.lockFile(path + ".graspsync-lock")
		}
		return conn.PingContext(ctx)
	}
	switch {
	case strings.HasPrefix(version, "PostgreSQL"):
		l.queries = postgresLocks
	case version != "" && '0' <= version[0] && version[0] <= '9': // MySQL and MariaDB
		l.queries = mysqlLocks
	default:
		return nil
	}
	if db.Stats().MaxOpenConnections == 1 {
		return errors.New("the database needs a second connection, for the lock: SetMaxOpenConns is 1")
	}
	l.db = db
	for range leaseTries {
		if err = l.take(ctx); !errors.Is(err, ErrInUse) {
			break
		}
		<-time.After(leasePause)
	}
	return err
}

func (l *lease) lockFile(path string) (err error) {
	if l.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("opening the lock: %w", err)
	}
	if err = filelock.Take(l.file, ErrInUse); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// take takes the lock on a new connection.
func (l *lease) take(ctx context.Context) (err error) {
	var taken sql.NullBool
	l.holder = ""
	if l.conn, err = l.db.Conn(ctx); err == nil {
		err = l.conn.QueryRowContext(ctx, l.queries.take, "graspsync "+filelock.Self()).Scan(&taken)
	}
	if err == nil {
		err = l.conn.QueryRowContext(ctx, l.queries.holder).Scan(&l.holder)
	}
	switch {
	case err == nil && taken.Bool:
		return nil
	case err == nil, taken.Valid && !taken.Bool: // the holder may be gone meanwhile
		err = fmt.Errorf("%w: %s", ErrInUse, l.holder)
	default:
		err = fmt.Errorf("%w: locking the database: %w", ErrBackend, err)
	}
	l.drop()
	return err
}

// drop closes the connection with the lock rather than give it back to the pool.
func (l *lease) drop() {
	if l.conn != nil {
		_ = l.conn.Raw(func(any) error { return driver.ErrBadConn }) // it always fails
		l.conn = nil
	}
}

// check returns why the database may not be used now. It asks the database at most once in leaseCheck.
func (l *lease) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.db == nil || errors.Is(l.err, ErrInUse) || time.Since(l.checked) < leaseCheck {
		return l.err
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	var holder string
	if l.conn == nil || l.conn.QueryRowContext(ctx, l.queries.holder).Scan(&holder) != nil || holder != l.holder {
		l.drop()
		l.err = l.take(ctx)
	}
	l.checked = time.Now()
	return l.err
}

// release ends the exclusive use.
func (l *lease) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
	l.db = nil
	if l.file != nil {
		_ = l.file.Close() // nothing of use was written
	}
}
