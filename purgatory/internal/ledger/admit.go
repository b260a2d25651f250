package ledger

import (
	"slices"
	"time"
)

// Admit completes an entry that is about to wait: its times. An announcement that
// replaces one that waits is a sign of life, but inherits since when the repository
// has waited.
func (l *Ledger) Admit(now time.Time, e Entry) Entry {
	e.Seen, e.Deadline = now, now.Add(l.cfg.Hold)
	if e.Class == Placeholder {
		e.Deadline = now.Add(l.cfg.Placeholder)
	}
	if e.Class == Relative {
		e.Deadline = now.Add(l.waits(&e))
	}
	if e.Class == Announcement {
		if old := l.announcement(e.Repos[0]); old != nil {
			e.Seen, e.Soft = old.Seen, old.Soft
			e.Deadline = old.Deadline
			e.Deadline = l.extended(now, e)
		}
	}
	if old, ok := l.entries[e.ID]; ok && old.Class == Placeholder && e.Class == PullRequest {
		for _, r := range old.Repos {
			if !slices.Contains(e.Repos, r) {
				e.Strays = append(e.Strays, r)
			}
		}
	}
	return e
}

// waits is how long a Relative does at most: no longer than what wants it can. It goes as
// soon as nothing does.
func (l *Ledger) waits(e *Entry) time.Duration {
	if e.For == e.Author {
		return l.cfg.Hold
	}
	return l.cfg.Longest + l.cfg.Soft
}
