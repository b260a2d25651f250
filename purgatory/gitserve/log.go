package gitserve

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/loglimit"
)

// requestLog logs and counts refused and failed requests, safe for concurrent use. It limits the
// lines per repository, because every client can cause failures.
type requestLog struct {
	*slog.Logger
	lines loglimit.Limiter[graspsync.RepoRef]

	mu sync.Mutex
	// guarded by mu
	refused map[string]uint64 // pushes, by label of refusalNames
}

// refusalNames are the metric labels of refusals. Limits of the Authority and faults that git finds
// are "other".
var refusalNames = map[string]string{
	refusedNoState: "no_state", refusedState: "state", refusedTip: "tip", refusedDelete: "deletion", refusedDisk: "disk",
	refusedStale:      "stale",
	errOwnerFull.text: "room", errPullsFull.text: "room", errFull.text: "room",
}

const refusalOther = "other"

func newRequestLog(log *slog.Logger) *requestLog {
	l := &requestLog{Logger: log, refused: map[string]uint64{refusalOther: 0}}
	for _, name := range refusalNames {
		l.refused[name] = 0
	}
	return l
}

func (l *requestLog) failed(ref graspsync.RepoRef, err error) {
	l.seldom(slog.LevelWarn, ref, "git request failed", err)
}

func (l *requestLog) seldom(level slog.Level, ref graspsync.RepoRef, what string, err error) {
	if l.lines.Allow(ref, time.Now()) {
		l.Log(context.Background(), level, what, "repo", graspsync.Printable(ref.String()), "error", graspsync.Printable(err.Error()))
	}
}

func (l *requestLog) pushRefused(ref graspsync.RepoRef, client string, req *request) {
	refused := slices.DeleteFunc(slices.Clone(req.commands), func(c *command) bool { return c.reason == "" || c.reason == refusedOther })
	if len(refused) == 0 {
		return
	}
	first, name := refused[0], refusalOther
	for reason, n := range refusalNames {
		if strings.HasPrefix(first.reason, reason) { // refusedState is followed by details
			name = n
		}
	}
	l.mu.Lock()
	l.refused[name]++
	l.mu.Unlock()
	l.Debug("push refused", "repo", graspsync.Printable(ref.String()), "ref", graspsync.Printable(first.name),
		"refs", len(refused), "reason", graspsync.Printable(first.reason), "client", graspsync.Printable(client))
}

func (l *requestLog) count() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.refused)
}
