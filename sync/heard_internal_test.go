package sync

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// heard keeps what is said to the outside: all lines of the log in full, and all observations.
type heard struct {
	observer *observer

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

// Write implements [io.Writer].
func (h *heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(b)
}

// hear has a configuration say all to whom it returns.
func hear(cfg *Config) *heard {
	h := &heard{}
	cfg.Logger = slog.New(slog.NewTextHandler(h, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey:
				return slog.Attr{}
			case keyStack: // another one each time
				return slog.Bool(keyStack, a.Value.String() != "")
			}
			return a
		},
	}))
	cfg.Observe, cfg.fixed.ObserveQueue = func(Observation) {}, 1_000
	return h
}

// lines returns what was logged since it was asked last.
func (h *heard) lines() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := strings.TrimSuffix(h.log.String(), "\n")
	h.log.Reset()
	if all == "" {
		return nil
	}
	return strings.Split(all, "\n")
}

// sayer is a loop with connections, none of which runs.
type sayer struct {
	*heard
	l *loopRig
}

func newSayer(t *testing.T, cfg Config) *sayer {
	t.Helper()
	h := hear(&cfg)
	l := madeLoop(t, &twinStore{}, cfg)
	h.observer = l.m.report.observer
	return &sayer{h, l}
}

// conn returns a connection that stands.
func (s *sayer) conn(t *testing.T, u graspsync.RelayURL) *conn {
	t.Helper()
	stats := s.l.stats[u]
	if stats == nil {
		stats = s.l.m.remember.stats(u)
		s.l.stats[u] = stats
	}
	c := newConn(t.Context(), s.l.env.conn, u, 7, stats)
	c.session = session.New(sessionConfig(s.l.m.cfg, stats, relaylimits.Limits{Requests: relaylimits.Declared(wire.Info{}, s.l.m.cfg.fixed.usual())}, wire.Info{}))
	c.stands = true
	s.l.conns[u] = c
	s.l.env.health.Attempt(u)
	s.l.env.health.Connected(u)
	return c
}

// sayerRelay is the relay of a sayer.
const sayerRelay = "wss://a.example"

// retryLater is an error that says when to try again.
type retryLater time.Duration

func (r retryLater) Error() string             { return "later" }
func (r retryLater) Unwrap() error             { return ErrNotDialed }
func (r retryLater) RetryAfter() time.Duration { return time.Duration(r) }
