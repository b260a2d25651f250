package sync

import (
	"log/slog"
	"time"

	"github.com/graspsync/graspsync"
)

// Summary is the difference between two moments, and what is so at the later one: a
// line for the log, once a minute or so.
//
//	now := manager.Status()
//	log.Info("sync", "status", now.Summary(before))
//	before = now
type Summary struct {
	Since time.Duration // between the two

	// At the later moment.
	Synced                 bool
	Known, Connected, Dead int // relays
	// InSync are those that were fetched from to their end: fewer than Known although Synced is true
	// are those that can't be reached, for which Unreached items wait.
	InSync, Unreached int
	Repos, Roots      int
	Git               GitStatus
	Waiting, InFlight int64 // events

	// Between the two: events newly stored by the way they came, found by history
	// though a live subscription should have brought them, rejected by the Policy;
	// what was dropped at bounds; what went wrong, that is attempts to connect that
	// failed, events that could not be judged or saved, forged ones, and panics.
	Direct, Live, CatchUp, Daily uint64
	Gaps                         uint64
	Rejected, Dropped, Errors    uint64
}

// Summary compares s to an earlier status of the same manager; the zero Status stands
// for its start. What was counted for relays that were forgotten meanwhile may be
// missing.
func (s Status) Summary(before Status) Summary {
	out := Summary{
		Synced: s.Synced, Known: len(s.Relays), Repos: s.Repos, Roots: s.Roots, Git: s.Git,
		Waiting: s.Events.Waiting, InFlight: s.Events.InFlight,
	}
	if !before.At.IsZero() {
		out.Since = s.At.Sub(before.At)
	}
	for _, r := range s.Relays {
		if r.Connected() {
			out.Connected++
		} else {
			out.Unreached += r.Missing()
		}
		if r.Synced {
			out.InSync++
		}
		if r.dead() {
			out.Dead++
		}
	}
	since := func(count func(Status) uint64) uint64 {
		now, then := count(s), count(before)
		return now - min(now, then)
	}
	source := func(k graspsync.SourceKind) uint64 {
		return since(func(s Status) uint64 { return s.Events.Sources[k.String()] })
	}
	out.Direct, out.Live, out.CatchUp, out.Daily = source(graspsync.Direct), source(graspsync.Live), source(graspsync.CatchUp), source(graspsync.Daily)
	out.Gaps = since(func(s Status) uint64 { return s.relays(func(r RelayStatus) uint64 { return r.Gaps }) })
	out.Rejected = since(func(s Status) uint64 { return total(s.Events.Rejected) })
	out.Dropped = since(func(s Status) uint64 { return total(s.Events.Dropped) })
	out.Errors = since(func(s Status) uint64 {
		return s.relays(func(r RelayStatus) uint64 { return r.FailedAttempts }) +
			s.Events.Failed + s.Events.Forged + total(s.Events.Panics)
	})
	return out
}

// relays adds up a count over all relays.
func (s Status) relays(count func(RelayStatus) uint64) uint64 {
	n := count(s.gone)
	for _, r := range s.Relays {
		n += count(r)
	}
	return n
}

func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// LogValue implements [slog.LogValuer]: one group of numbers.
func (s Summary) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Bool("synced", s.Synced), slog.String("git", s.Git.String()),
		slog.Int("relays_connected", s.Connected), slog.Int("relays_known", s.Known), slog.Int("relays_dead", s.Dead),
		slog.Int("relays_synced", s.InSync), slog.Int("items_unreached", s.Unreached),
		slog.Int("repos", s.Repos), slog.Int("roots", s.Roots),
		slog.Uint64("stored_direct", s.Direct), slog.Uint64("stored_live", s.Live),
		slog.Uint64("stored_catchup", s.CatchUp), slog.Uint64("stored_daily", s.Daily),
		slog.Uint64("gaps", s.Gaps), slog.Uint64("rejected", s.Rejected), slog.Uint64("dropped", s.Dropped),
		slog.Int64("waiting", s.Waiting), slog.Int64("in_flight", s.InFlight), slog.Uint64("errors", s.Errors),
	)
}

// String is the same for who has no structured log.
func (s Summary) String() string { return s.LogValue().String() }
