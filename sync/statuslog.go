package sync

import "log/slog"

// LogValue implements [slog.LogValuer]. It returns a group for a log line that is written once a
// minute. Counts are since the start.
func (s Status) LogValue() slog.Value {
	connected, synced, dead := 0, 0, 0
	for _, r := range s.Relays {
		connected += b2i(r.Connected())
		synced += b2i(r.Synced)
		dead += b2i(r.dead())
	}
	return slog.GroupValue(
		slog.Bool("synced", s.Synced), slog.Bool("store_unread", s.Unread),
		slog.Int("git_complete", s.Git.Complete), slog.Int("git_missing", s.Git.Missing),
		slog.Int("git_unobtainable", s.Git.Unobtainable),
		slog.Int("relays_connected", connected), slog.Int("relays_known", len(s.Relays)),
		slog.Int("relays_synced", synced), slog.Int("relays_dead", dead),
		slog.Int("repos", s.Repos), slog.Int("roots", s.Roots),
		slog.Uint64("stored", s.Events.Stored), slog.Uint64("rejected", total(s.Events.Rejected)),
		slog.Uint64("dropped", total(s.Events.Dropped)), slog.Uint64("failed", s.Events.Failed),
		slog.Int64("waiting", s.Events.Waiting), slog.Int64("in_flight", s.Events.InFlight),
	)
}

func b2i(is bool) int {
	if is {
		return 1
	}
	return 0
}

func total(counts map[string]uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
