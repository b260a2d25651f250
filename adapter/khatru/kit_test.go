package khatruadapter

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// logbook records log lines of level Warn and above.
type logbook struct {
	slog.Handler
	mu    sync.Mutex
	lines map[string]bool // guarded by mu
}

// Enabled implements [slog.Handler].
func (*logbook) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (b *logbook) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "hook" {
			line += " " + a.Value.String()
		}
		return true
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines[line] = true
	return nil
}

var (
	saidMu   sync.Mutex
	expected = make(map[testing.TB][]string) // guarded by saidMu
)

// expectLog sets the log lines of a test. Exactly these lines must have been logged at its end.
func expectLog(t testing.TB, lines ...string) {
	saidMu.Lock()
	defer saidMu.Unlock()
	expected[t] = append(expected[t], lines...)
}

// logged returns a logger that checks the lines of a test.
func logged(t testing.TB) *slog.Logger {
	b := &logbook{Handler: slog.DiscardHandler, lines: make(map[string]bool)}
	t.Cleanup(func() {
		saidMu.Lock()
		want := slices.Compact(slices.Sorted(slices.Values(expected[t])))
		delete(expected, t)
		saidMu.Unlock()
		b.mu.Lock()
		defer b.mu.Unlock()
		got := []string{}
		for line := range b.lines {
			got = append(got, line)
		}
		assert.ElementsMatch(t, want, got, "what is logged")
	})
	return slog.New(b)
}
