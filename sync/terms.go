package sync

import (
	"time"

	"github.com/graspsync/graspsync/sync/internal/learned"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

const (
	believed     = 24 * time.Hour // what a relay taught, but for the page size
	leastMessage = 1 << 10        // bytes that every relay is trusted to take
	maxAside     = 1000           // values set aside at one relay
)

// narrowed returns limits that go no further than what was learned: what a relay
// says of itself is often wrong, what it did is not.
func narrowed(l plan.Limits, facts learned.Facts, now time.Time) plan.Limits {
	narrow := func(field *int, k learned.Kind, least int) {
		if n := facts.Value(k, now); n > 0 {
			*field = min(*field, max(n, least))
		}
	}
	narrow(&l.MaxMessage, learned.MaxMessage, leastMessage)
	narrow(&l.MaxFilters, learned.MaxFilters, 1)
	narrow(&l.MaxSubscriptions, learned.MaxSubscriptions, 2)
	if facts.Value(learned.NoLimitZero, now) > 0 {
		l.MaxMessage = max(leastMessage, l.MaxMessage-session.SinceSize*l.MaxFilters)
	}
	if l.MaxRetained = facts.Value(learned.MaxRetained, now); l.MaxRetained > 0 {
		// Of one request, that there is room for several.
		l.MaxMessage = min(l.MaxMessage, max(leastMessage, l.MaxRetained/4))
	}
	l.MaxValues, l.NeedsKinds = facts.Value(learned.MaxValues, now), facts.Value(learned.NeedsKinds, now) > 0
	return l
}

// termsOf says what requests have to keep to.
func termsOf(l plan.Limits, facts learned.Facts, now time.Time) session.Terms {
	return session.Terms{
		NoNegentropy:  facts.Value(learned.NoNegentropy, now) > 0,
		NeedsKinds:    facts.Value(learned.NeedsKinds, now) > 0,
		NoNotes:       facts.Value(learned.NoNotes, now) > 0,
		NoLimitZero:   facts.Value(learned.NoLimitZero, now) > 0,
		MaxValues:     facts.Value(learned.MaxValues, now),
		NegentropyMax: facts.Value(learned.NegentropyMax, now),
		Pace:          time.Duration(facts.Value(learned.Pace, now)) * time.Millisecond,
		MaxFilters:    l.MaxFilters, MaxMessage: l.MaxMessage, MaxSubscriptions: l.MaxSubscriptions,
		MaxRetained: l.MaxRetained,
	}
}

// limitsOf turns a NIP-11 document into limits.
func limitsOf(t constants, info wire.Info) plan.Limits {
	l := plan.Limits{MaxMessage: t.MessageSize, MaxFilters: t.Filters, MaxSubscriptions: t.Subscriptions}
	if n := info.MaxMessageLength; n > 0 {
		l.MaxMessage = min(max(n, leastSaid), mostSaid)
	}
	if n := info.MaxFilters; n > 0 {
		l.MaxFilters = min(n, mostFilters)
	}
	if n := info.MaxSubscriptions; n > 0 {
		l.MaxSubscriptions = min(max(n, leastSubscriptions), mostSubscriptions)
	}
	return l
}

// sessionConfig says how a session with a relay goes about it.
func sessionConfig(cfg *Config, stats *relayStats, terms session.Terms, limits plan.Limits, info wire.Info) session.Config {
	now, t := time.Now(), cfg.fixed
	facts, aside := stats.learned(now)
	c := session.Config{
		Historic: limits.Historic(), Reconciling: 2,
		PageLimit: t.PageLimit, MaxPage: t.MaxPage, IDChunk: t.IDsPerRequest,
		NegFrame: min(t.NegentropyFrame, limits.MaxMessage/4), NegRounds: t.NegentropyRounds, NegIDs: t.NegentropyIDs,
		Terms: terms, SetAside: aside, PageSize: facts.Value(learned.PageSize, now),
		Auth:        cfg.Signer != nil,
		OpenTimeout: t.OpenTimeout,
		FirstNeg:    t.NegentropyFirst, NegTimeout: t.NegentropyTimeout,
		FirstAnswer: t.FirstAnswer, IdleTimeout: cfg.fixed.IdleTimeout, TotalTimeout: cfg.fixed.TotalTimeout,
		Cooldown: cfg.Health.RateLimit, Cooled: stats.lastCooled(), GapAge: t.GapAge, MaxStrikes: t.Strikes,
	}
	c.IDChunk = min(c.IDChunk, (limits.MaxMessage-200)/67) // of 64 digits, quotes and a comma
	if terms.MaxValues > 0 {
		c.IDChunk = min(c.IDChunk, terms.MaxValues)
	}
	if n := info.MaxLimit; n > 0 {
		c.PageLimit = min(n, 2*t.PageLimit)
		c.IDChunk = min(n, c.IDChunk)
	}
	return c
}
