package sync

import (
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
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

// learn has something believed about the relay for a while.
func (s *relayStats) learn(k learned.Kind, value int, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts.Learn(k, value, until)
}

// setAside has a value left out of what is asked for, for a while.
func (s *relayStats) setAside(v session.Value, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aside == nil {
		s.aside = make(map[session.Value]time.Time)
	}
	if len(s.aside) < maxAside {
		s.aside[v] = until
	}
}

// learned returns what is believed about the relay, and what is set aside.
func (s *relayStats) learned(now time.Time) (facts learned.Facts, aside []session.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v, until := range s.aside {
		if now.Before(until) {
			aside = append(aside, v)
		} else {
			delete(s.aside, v)
		}
	}
	return s.facts, aside
}

// cooled remembers for the next connection how long the relay had to be left alone.
func (s *relayStats) cooled(c session.Cooling) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cooling = c
}

func (s *relayStats) lastCooled() session.Cooling {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cooling
}

// cuts are the connections that a relay ended rather than answer a large request.
type cuts struct {
	size   int // the smallest of these requests
	count  int // in a row, none as large answered in between
	took   int // the largest request that it has answered
	tookAt time.Time
}

// How many cuts in a row are taken to be about the size of requests. A relay that has
// answered as large a one within a day is more likely to be one that drops its
// connections for reasons of its own.
const (
	cutsBelieved = 2
	cutsDoubted  = 6
)

// cut takes in that the relay ended the connection rather than answer a request of
// this size. Once may be chance; the second time it is taken to be why.
func (s *relayStats) cut(size int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cuts
	if c.count++; c.count == 1 || size < c.size {
		c.size = size
	}
	needs := cutsBelieved
	if c.size <= c.took && now.Sub(c.tookAt) < believed {
		needs = cutsDoubted
	}
	if c.count < needs {
		return
	}
	s.facts.Learn(learned.MaxMessage, max(leastMessage, c.size/2), now.Add(believed))
	c.size, c.count = 0, 0
}

// answered takes in that the relay answered a request of this size.
func (s *relayStats) answered(size int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cuts
	if size >= c.size {
		c.size, c.count = 0, 0
	}
	if size >= c.took || now.Sub(c.tookAt) >= believed {
		c.took, c.tookAt = size, now
	}
}

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

// believes is what a connection last went by.
type believes struct {
	info   wire.Info
	limits plan.Limits
	terms  session.Terms
	aside  int // values set aside
}

// current brings what the connection goes by up to date, and returns the values
// that are set aside.
func (c *conn) current(now time.Time) (aside []session.Value, changed bool) {
	facts, aside := c.stats.learned(now)
	b := believes{info: c.believes.info, limits: narrowed(c.m.limitsOf(c.believes.info), facts, now), aside: len(aside)}
	b.terms = termsOf(b.limits, facts, now)
	if c.session != nil && b.limits != c.believes.limits {
		c.m.post(planInput{plan.LimitsChanged{Relay: c.url, Epoch: c.epoch, Limits: b.limits}})
	}
	changed = b.terms != c.believes.terms || b.aside != c.believes.aside
	c.believes = b
	return aside, changed
}

// outgrow has the session forget what is not believed any more: a relay that has
// become better is used better.
func (c *conn) outgrow(now time.Time) {
	if aside, changed := c.current(now); changed {
		c.session.SetTerms(c.believes.terms, aside)
	}
}

// learn takes in what the session found out.
func (c *conn) learn(a session.Learned) {
	now := time.Now()
	until := now.Add(believed)
	if a.Kind == learned.NoNegentropy {
		until = now.Add(c.m.cfg.fixed.NegentropyRetry)
	}
	c.stats.learn(a.Kind, a.Value, until)
	c.learned(a.Kind.String(), a.Value, a.Reason)
	c.current(now)
}

// setAside takes in that the relay refuses whatever has this value.
func (c *conn) setAside(v session.Value) {
	now := time.Now()
	c.stats.setAside(v, now.Add(believed))
	c.m.counters.drop("poison", 1)
	if c.m.mayLog(c.url, classAside) {
		c.m.cfg.Logger.Warn("relay refuses a value", keyRelay, c.url.String(), "list", v.Tag, "value", graspsync.Printable(v.Value))
	}
	c.current(now)
}

// send sends a request. One that is too large did not leave us: the session makes
// another one.
func (c *conn) send(r wire.Request) []session.Action {
	size := sizeOf(r)
	err := c.conn.Send(c.ctx, r)
	switch {
	case err == nil:
		c.asked(r, size)
	case errors.Is(err, ErrMessageTooLarge) && !errors.Is(err, ErrClosed) && r.Event == nil:
		return c.session.Unsent(time.Now(), r.Sub, size, graspsync.Printable(err.Error()))
	default:
		c.end(fmt.Errorf("sending: %w", err))
	}
	return nil
}

// asked notes the largest request that is not answered.
func (c *conn) asked(r wire.Request, size int) {
	if (r.Type == wire.TypeReq || r.Type == wire.TypeNegOpen) && size > leastMessage && size >= c.largeSize {
		c.large, c.largeSize, c.largeAt = r.Sub, size, time.Now()
	}
}

// answered notes that the relay takes requests of this size.
func (c *conn) answered(sub string) {
	if c.largeSize > 0 && sub == c.large {
		c.stats.answered(c.largeSize, time.Now())
		c.large, c.largeSize = "", 0
	}
}

// largeCut is how soon after a large request a lost connection is taken for its
// answer.
const largeCut = 10 * time.Second

// judgeCut looks at why the connection was lost, unless we ended it.
func (c *conn) judgeCut(now time.Time) {
	if c.largeSize > 0 && c.ctx.Err() == nil && now.Sub(c.largeAt) < largeCut {
		c.stats.cut(c.largeSize, now)
	}
}

// sizeOf is about how many bytes a request has.
func sizeOf(r wire.Request) int {
	n := 80 + 2*len(r.Payload) // label and id
	for _, f := range r.Filters {
		n += filters.Size(f) + 1
	}
	return n
}
