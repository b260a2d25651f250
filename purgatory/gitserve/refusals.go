package gitserve

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/graspsync/graspsync"
)

// refusals has the operator see which pushes are refused, and why. It is safe for concurrent use.
type refusals struct {
	log *slog.Logger

	mu sync.Mutex
	// guarded by mu
	counts map[string]uint64 // by the names of refusalNames
}

// refusalNames are what refusals are counted as; what is none of them is "other": a limit of the
// Authority, or what git said.
var refusalNames = map[string]string{
	refusedNoState: "no_state", refusedState: "state", refusedTip: "tip", refusedDelete: "deletion", refusedDisk: "disk",
	refusedStale: "stale", refusedMeanwhile: "meanwhile",
	errOwnerFull.Error(): "room", errPullsFull.Error(): "room", errFull.Error(): "room",
}

const refusalOther = "other"

// refusalName is what a refusal is counted as.
func refusalName(reason string) string {
	if strings.HasPrefix(reason, refusedState) { // with what the state has
		reason = refusedState
	}
	if name, ok := refusalNames[reason]; ok {
		return name
	}
	return refusalOther
}

func newRefusals(log *slog.Logger) *refusals {
	r := &refusals{log: log, counts: map[string]uint64{refusalOther: 0}}
	for _, name := range refusalNames {
		r.counts[name] = 0
	}
	return r
}

// push notes a push that was refused: once, with the reason of the first of its refs that has one.
func (r *refusals) push(ref graspsync.RepoRef, client string, req *request) {
	refused := slices.DeleteFunc(slices.Clone(req.commands), func(c *command) bool { return c.reason == "" || c.reason == refusedOther })
	if len(refused) == 0 {
		return
	}
	first := refused[0]
	r.mu.Lock()
	r.counts[refusalName(first.reason)]++
	r.mu.Unlock()
	r.log.Debug("push refused", "repo", graspsync.Printable(ref.String()), "ref", graspsync.Printable(first.name),
		"refs", len(refused), "reason", graspsync.Printable(first.reason), "client", graspsync.Printable(client))
}

// count returns how many pushes were refused, by why.
func (r *refusals) count() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}
