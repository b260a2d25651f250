package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/wire"
)

// deliver lets a message arrive. Messages of different subscriptions may overtake each other. A
// NOTICE arrives immediately because later it could not be assigned to a request.
func (w *world) deliver() {
	if len(w.out) == 0 {
		return
	}
	i := 0
	if !w.calm {
		i = w.src.n(len(w.out))
		for j := range w.out[:i] {
			if w.out[j].Sub == w.out[i].Sub {
				i = j
				break
			}
		}
	}
	if n := slices.IndexFunc(w.out, isNotice); n >= 0 {
		i = n
	}
	m := w.out[i]
	w.out = slices.Delete(w.out, i, i+1)
	if m.Type == wire.TypeNotice || m.Sub == w.last {
		w.last = ""
	}
	if m.Type == wire.TypeClosed {
		delete(w.open, m.Sub)
		delete(w.live, m.Sub)
		delete(w.history, m.Sub)
	}
	w.count(m)
	actions := w.s.Receive(w.now, m)
	if strings.HasPrefix(m.Text, "rate-limited") && !w.now.Before(w.cool) {
		require.Len(w.t, only[RateLimited](actions), 1, "T3: the pause after %s", m.Text)
	}
	if l := w.live[m.Sub]; l != nil {
		w.checkLive(m, l, actions)
	}
	w.do(fmt.Sprintf("< %d %s %s", m.Type, m.Sub, m.Text), actions)
}

// count counts the events of a batch.
func (w *world) count(m wire.Message) {
	x := w.s.subs[m.Sub]
	if x == nil || x.q == nil {
		return
	}
	b := w.batches[x.q.b.ID]
	switch {
	case m.Type == wire.TypeEvent:
		b.events++
	case m.Type == wire.TypeEOSE && x.kind == reqPage && !(x.noticed && x.events == 0):
		b.pages++
	}
}

// checkLive checks that live events are delivered, and are marked as new or old.
func (w *world) checkLive(m wire.Message, l *worldLive, actions []Action) {
	var want []Deliver
	switch m.Type {
	case wire.TypeEvent:
		want = []Deliver{{Event: m.Event, Size: 100}}
	case wire.TypeEOSE:
		l.stands = true
	}
	require.Equal(w.t, want, only[Deliver](actions))
}

// dense reports whether a second has more events than a page.
func (w *world) dense(f nostr.Filter, at nostr.Timestamp) bool {
	return len(w.matching(f, func(ev *nostr.Event) bool { return ev.CreatedAt == at })) >= min(w.cap, w.s.cfg.PageLimit)
}

func (w *world) matching(f nostr.Filter, also func(*nostr.Event) bool) (out []*nostr.Event) {
	m := filters.Compile([]nostr.Filter{f})
	for _, ev := range w.events {
		if m.Match(ev) && also(ev) {
			out = append(out, ev)
		}
	}
	return out
}

// send checks a request and lets the relay react.
func (w *world) send(r wire.Request) {
	t := w.t
	w.sent[r.Type]++
	switch r.Type {
	case wire.TypeClose, wire.TypeNegClose:
		require.True(t, w.used[r.Sub])
		delete(w.open, r.Sub)
		delete(w.live, r.Sub)
		delete(w.history, r.Sub)
		w.out = slices.DeleteFunc(w.out, func(m wire.Message) bool { return m.Sub == r.Sub && w.src.n(2) == 0 })
		return
	case wire.TypeNegSend:
		w.negReply(r)
		return
	case wire.TypeAnswer:
		w.authenticated(r)
		return
	}
	require.False(t, w.used[r.Sub], "id %s used twice", r.Sub)
	require.LessOrEqual(t, len(r.Sub), 64)
	w.used[r.Sub] = true
	require.False(t, w.now.Before(w.cool), "T3: %s sent in a cool-down", r.Sub)
	require.True(t, w.last == "" || w.s.subs[w.last] == nil || w.now.Sub(w.openAt) >= 2*time.Second, "%s opened before %s was answered", r.Sub, w.last)
	w.last, w.openAt = r.Sub, w.now
	require.NotEmpty(t, r.Filters)
	for _, f := range r.Filters {
		require.False(t, filters.Empty(f))
	}
	switch {
	case r.Type == wire.TypeNegOpen:
	case r.Sub[0] == 'l':
		w.live[r.Sub] = &worldLive{filters: r.Filters}
	default:
		w.history[r.Sub] = true
	}
	if !w.calm && r.Type == wire.TypeReq && w.src.n(80) == 0 {
		w.unsend(r)
		return
	}
	if w.refuses(r) {
		return
	}
	if r.Type == wire.TypeNegOpen {
		w.negOpen(r)
		return
	}
	if r.Filters[0].LimitZero || r.Sub[0] == 'l' || r.Sub[0] == 'p' && r.Filters[0].Limit == 0 {
		w.reactLive(r)
		return
	}
	require.Len(t, r.Filters, 1)
	w.open[r.Sub] = true
	require.LessOrEqual(t, len(w.open), w.limit, "historic slots")
	w.react(r)
}

// unsend reports a request as larger than the maximum message.
func (w *world) unsend(r wire.Request) {
	w.answers = append(w.answers, func() []Action {
		delete(w.open, r.Sub)
		delete(w.live, r.Sub)
		delete(w.history, r.Sub)
		return w.s.Unsent(w.now, r.Sub, 1<<10<<w.src.n(6), "too large to be sent")
	})
}

func (w *world) say(ms ...wire.Message) { w.out = append(w.out, ms...) }

func (w *world) reactLive(r wire.Request) {
	switch {
	case w.calm || w.src.n(6) > 0:
		w.say(eose(r.Sub))
	case w.src.n(2) == 0:
		w.say(closed(r.Sub, "rate-limited: slow down"))
	case w.src.n(2) == 0:
		w.say(closed(r.Sub, "error: no"))
	}
}

// react answers a historic REQ, or stays silent.
func (w *world) react(r wire.Request) {
	if w.refuse != nil && w.refuse(r) {
		return
	}
	f := r.Filters[0]
	if w.rewrite != nil {
		f = w.rewrite(f)
	}
	page := w.matching(f, func(ev *nostr.Event) bool { return f.IDs == nil && !w.madeUp || !w.hidden[ev.ID] })
	page = page[:min(len(page), w.cap, f.Limit)]
	var events []wire.Message
	for _, ev := range page {
		events = append(events, eventMsg(r.Sub, ev))
	}
	mood := w.src.n(60)
	if w.calm {
		mood = 0
	}
	part := events[:w.src.n(len(events)+1)]
	switch mood {
	default:
		w.say(append(events, eose(r.Sub))...)
	case 10:
		w.say(append(part, closed(r.Sub, "rate-limited: slow down"))...)
	case 11:
		w.say(append(part, closed(r.Sub, "error: shutting down"))...)
	case 12:
		w.say(part...) // and silence
	case 13:
		w.say(notice("something went wrong"), eose(r.Sub))
	case 14:
		w.say(closed(r.Sub, "error: too many concurrent REQs"))
	case 15:
		w.say(notice("too many filters"))
	case 16:
		w.repeats = true
		w.say(append(append(events, events...), eose(r.Sub))...)
	case 17:
		w.say(append(part, closed(r.Sub, "auth-required: who are you"))...)
	}
}

func (w *world) negOpen(r wire.Request) {
	if w.src.n(10) == 0 && !w.calm {
		w.say(wire.Message{Type: wire.TypeNegErr, Sub: r.Sub, Text: []string{"rate-limited: slow", "closed: lost", "restricted: no", "error: x"}[w.src.n(4)]})
		return
	}
	switch w.kind {
	case offersNeg, negBroken:
		w.negReply(r)
	case refusesNegErr:
		w.say(wire.Message{Type: wire.TypeNegErr, Sub: r.Sub, Text: "unsupported: no"})
	case refusesNotice:
		w.say(notice("ERROR: bad msg: negentropy disabled"))
	case refusesSilently:
	case negTooLarge:
		if len(w.matching(r.Filters[0], func(*nostr.Event) bool { return true })) > w.negMax {
			w.say(wire.Message{Type: wire.TypeNegErr, Sub: r.Sub, Text: "blocked: too many query results", Max: max(0, w.negMax)})
			return
		}
		w.negReply(r)
	}
}

func (w *world) negReply(r wire.Request) {
	if r.Filters != nil {
		w.asked[r.Sub] = r.Filters[0]
	}
	found := w.matching(w.asked[r.Sub], func(*nostr.Event) bool { return true })
	found = slices.DeleteFunc(found, func(ev *nostr.Event) bool { return w.unshown[ev.ID] })
	if w.negCap > 0 {
		found = found[:min(len(found), w.negCap)]
	}
	reply, err := negentropy.Answer(setOf(found...), r.Payload, w.negFrame)
	require.NoError(w.t, err)
	switch {
	case w.kind == negBroken && w.src.n(3) == 0:
		reply = append(slices.Clone(reply), 0xff)
	case !w.calm && w.src.n(12) == 0:
		w.say(wire.Message{Type: wire.TypeNegErr, Sub: r.Sub, Text: "closed: timeout"})
		return
	case !w.calm && w.src.n(12) == 0:
		return
	}
	w.say(wire.Message{Type: wire.TypeNegMsg, Sub: r.Sub, Payload: reply})
}

func isNotice(m wire.Message) bool { return m.Type == wire.TypeNotice }
