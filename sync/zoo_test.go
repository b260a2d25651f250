package sync_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// temper is the intensity of the relays of the zoo.
type temper struct {
	pace time.Duration // between two messages of an endless stream
	bulk int           // number of messages of a burst
}

// zoo returns relays that lie, stall, limit, refuse or break rules, new ones at
// each call.
func zoo(w temper) map[string]relaytest.Behavior {
	all := make(map[string]relaytest.Behavior)
	for _, part := range []func(temper) map[string]relaytest.Behavior{
		odd, stubborn, stormy, floods, liars, fickle,
	} {
		maps.Copy(all, part(w))
	}
	return all
}

// odd relays are described by fields of Behavior.
func odd(w temper) map[string]relaytest.Behavior {
	return map[string]relaytest.Behavior{
		"never EOSE":     {NeverEOSE: true, Negentropy: relaytest.NegNotice},
		"endless events": {EndlessEvents: w.pace, Negentropy: relaytest.NegNotice},
		"drip":           {Drip: 20 * time.Second, Negentropy: relaytest.NegNotice},
		"unasked events": {Handle: answer(func(c *relaytest.ConnScript, req wire.Request) {
			for i := range 5 {
				ev := relaytest.NewKey("nobody asked").Event(at(time.Hour), 39_001, fmt.Sprint(i))
				c.Send(wire.Message{Type: wire.TypeEvent, Sub: req.Sub, Event: eventtest.Of(ev)})
			}
			c.Answer(req)
		})},
		"forged signatures": {Forge: relaytest.ForgeSignature, ForgeFirst: true},
		"forged content":    {Forge: relaytest.ForgeContent, ForgeFirst: true},
		"forged ids":        {Forge: relaytest.ForgeID, ForgeFirst: true},
		"lying NIP-77":      {LyingNegentropy: 100},
		"endless NIP-77":    {Negentropy: relaytest.NegEndless},
		"garbage NIP-77":    {Negentropy: relaytest.NegGarbage},
		"huge NIP-77":       {Negentropy: relaytest.NegHugeList},
		"silent NIP-77":     {Negentropy: relaytest.NegSilent},
		"ignores until":     {IgnoreUntil: true, Cap: 5, Negentropy: relaytest.NegNotice},
		"ignores limit":     {IgnoreLimit: true, LimitZeroReturnsStored: true},
		"wrong order":       {WrongOrder: true, Cap: 5, Negentropy: relaytest.NegNotice},
		"interleaves":       {Interleave: true, Negentropy: relaytest.NegNotice},
		"events after closed": {Handle: answer(func(c *relaytest.ConnScript, req wire.Request) {
			c.Send(wire.Message{Type: wire.TypeClosed, Sub: req.Sub, Text: "error: no"})
			c.Answer(req)
		})},
		"notice and EOSE":       {Handle: fails("error: database"), Negentropy: relaytest.NegNotice},
		"nothing but notices":   {ClosedReason: refuse("hello"), RefuseByNotice: true, Negentropy: relaytest.NegSilent},
		"stops reading":         {StopReading: true},
		"cuts at once":          {CutAfter: 1},
		"three subscriptions":   {MaxSubs: 3, Negentropy: relaytest.NegNotice},
		"one filter":            {MaxFilters: 1},
		"late events":           {LateEvents: 5, Negentropy: relaytest.NegNotice},
		"limits the rate":       {RateLimit: 1},
		"refuses kindless":      {RefuseKindless: true, Negentropy: relaytest.NegNotice},
		"never answers":         {NoAnswer: true},
		"slow":                  {BytesPerSecond: 200},
		"tiny messages allowed": {Info: wire.Info{MaxMessageLength: 4096}, MaxMessage: 4096},
		"one event a page":      {Cap: 1, Negentropy: relaytest.NegNotice},
		"reconciles one record": {NegMax: 1},
		"forgets sessions":      {NegRounds: 1, NegFrame: 4096},
	}
}

// stubborn relays refuse every request, each with another text.
func stubborn(temper) map[string]relaytest.Behavior {
	out := map[string]relaytest.Behavior{
		"asks for auth":       {Auth: relaytest.AuthRequired},
		"auth is not enough":  {Auth: relaytest.AuthRestricted},
		"closes everything":   {ClosedReason: refuse("restricted: no")},
		"redirects":           {DialError: errors.New("unexpected status 307: Temporary Redirect")},
		"connects slowly":     {DialDelay: 9 * time.Second},
		"down":                {Down: true},
		"rate limits for fun": {RateLimit: 1, RateLimitNotice: true, Negentropy: relaytest.NegSilent},
	}
	for _, reason := range []string{"rate-limited: never", "error: shutting down", "blocked: you", "bad req: no", "auth-required: please", ""} {
		out[fmt.Sprintf("closes with %q", reason)] = relaytest.Behavior{
			Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
				switch req.Type {
				case wire.TypeReq:
					c.Send(wire.Message{Type: wire.TypeClosed, Sub: req.Sub, Text: reason})
				case wire.TypeNegOpen:
					c.Send(wire.Message{Type: wire.TypeNegErr, Sub: req.Sub, Text: reason})
				}
				return true
			},
		}
	}
	return out
}

func refuse(text string) func(wire.Request) string {
	return func(wire.Request) string { return text }
}

// answer returns a Handle that answers each REQ by reply.
func answer(reply func(c *relaytest.ConnScript, req wire.Request)) func(*relaytest.ConnScript, wire.Request) bool {
	return func(c *relaytest.ConnScript, req wire.Request) bool {
		if req.Type == wire.TypeReq {
			reply(c, req)
		}
		return req.Type == wire.TypeReq
	}
}

// fails returns a Handle that answers each REQ by a NOTICE and EOSE.
func fails(text string) func(*relaytest.ConnScript, wire.Request) bool {
	return answer(func(c *relaytest.ConnScript, req wire.Request) {
		c.Send(wire.Message{Type: wire.TypeNotice, Text: text}, wire.Message{Type: wire.TypeEOSE, Sub: req.Sub})
	})
}

// storm sends unrequested messages while the connection lasts, at most most of them.
func storm(w temper, most int, message func(c *relaytest.ConnScript, i int) wire.Message) func(*relaytest.ConnScript) {
	return func(c *relaytest.ConnScript) {
		n := 0
		var next func()
		next = func() {
			if n++; n > most || c.Relay().Open() == 0 {
				return
			}
			c.Send(message(c, n))
			time.AfterFunc(w.pace, next)
		}
		time.AfterFunc(w.pace, next)
	}
}

// stormy relays send unrequested messages and also answer requests.
func stormy(w temper) map[string]relaytest.Behavior {
	most := 20 * w.bulk
	// open returns the name of an open subscription, if there is one.
	open := func(c *relaytest.ConnScript) string {
		for _, s := range c.Relay().Subscriptions() {
			if s.Conn == c.Conn() {
				return s.ID
			}
		}
		return "nothing"
	}
	key := relaytest.NewCheapKey("storm")
	return map[string]relaytest.Behavior{
		"NOTICE storm": {OnConnect: storm(w, most, func(_ *relaytest.ConnScript, i int) wire.Message {
			return wire.Message{Type: wire.TypeNotice, Text: fmt.Sprint("notice ", i)}
		})},
		"rate limit storm": {OnConnect: storm(w, most, func(*relaytest.ConnScript, int) wire.Message {
			return wire.Message{Type: wire.TypeNotice, Text: "rate-limited: slow down"}
		})},
		"AUTH storm": {OnConnect: storm(w, most, func(_ *relaytest.ConnScript, i int) wire.Message {
			return wire.Message{Type: wire.TypeAuth, Text: fmt.Sprint("challenge ", i)}
		})},
		"EOSE storm": {OnConnect: storm(w, most, func(c *relaytest.ConnScript, _ int) wire.Message {
			return wire.Message{Type: wire.TypeEOSE, Sub: open(c)}
		})},
		"CLOSED storm": {OnConnect: storm(w, most, func(c *relaytest.ConnScript, _ int) wire.Message {
			return wire.Message{Type: wire.TypeClosed, Sub: open(c), Text: "error: closing"}
		})},
		"OK storm": {OnConnect: storm(w, most, func(_ *relaytest.ConnScript, i int) wire.Message {
			return wire.Message{Type: wire.TypeOK, ID: graspsync.EventID{1: byte(i)}, Accepted: i%2 == 0, Text: "duplicate:"}
		})},
		"NEG storm": {OnConnect: storm(w, most, func(c *relaytest.ConnScript, i int) wire.Message {
			return wire.Message{Type: wire.TypeNegMsg, Sub: open(c), Payload: []byte{0x61, byte(i)}}
		})},
		"unknown subscriptions": {OnConnect: storm(w, most, func(_ *relaytest.ConnScript, i int) wire.Message {
			return wire.Message{Type: wire.TypeEvent, Sub: fmt.Sprint("unknown", i), Event: eventtest.Of(key.Event(at(0), 1, fmt.Sprint(i)))}
		})},
		"foreign live events": {OnConnect: storm(w, most, func(c *relaytest.ConnScript, i int) wire.Message {
			ev := key.Hosted(at(0), fmt.Sprint("storm", i), "elsewhere.example")
			return wire.Message{Type: wire.TypeEvent, Sub: open(c), Event: eventtest.Of(ev)}
		})},
	}
}

// flood answers a REQ for stored events with bulk events and EOSE.
func flood(w temper, event func(i int, f nostr.Filter) *nostr.Event) relaytest.Behavior {
	return relaytest.Behavior{
		Negentropy: relaytest.NegNotice,
		Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
			if req.Type != wire.TypeReq || req.Filters[0].LimitZero {
				return false
			}
			messages := make([]wire.Message, 0, w.bulk+1)
			for i := range w.bulk {
				messages = append(messages, wire.Message{Type: wire.TypeEvent, Sub: req.Sub, Event: eventtest.Of(event(i, req.Filters[0]))})
			}
			c.Send(append(messages, wire.Message{Type: wire.TypeEOSE, Sub: req.Sub})...)
			return true
		},
	}
}

// floods are relays that send far too many events.
func floods(w temper) map[string]relaytest.Behavior {
	key := relaytest.NewCheapKey("flood")
	same := key.Hosted(at(time.Hour), "same", "elsewhere.example")
	// match returns an event of another service that a filter matches.
	match := func(i int, when nostr.Timestamp, f nostr.Filter, tags ...nostr.Tag) *nostr.Event {
		if f.Until != nil {
			when = min(when, *f.Until)
		}
		if slices.Contains(f.Kinds, graspsync.KindAnnouncement) {
			tags = append(tags, nostr.Tag{"d", fmt.Sprint("flood", i)}, nostr.Tag{"relays", "wss://elsewhere.example"})
			return key.Event(when, graspsync.KindAnnouncement, "", tags...)
		}
		return key.Event(when, 9, fmt.Sprint("flood ", i), tags...)
	}
	var huge nostr.Tags
	for i := range 500 {
		huge = append(huge, nostr.Tag{"x", fmt.Sprint(i) + strings.Repeat("x", 200)})
	}
	endless := func(event func(n int, f nostr.Filter) *nostr.Event) relaytest.Behavior {
		return relaytest.Behavior{EndlessEvents: w.pace, Endless: event, Negentropy: relaytest.NegNotice}
	}
	return map[string]relaytest.Behavior{
		"foreign flood":   flood(w, func(i int, f nostr.Filter) *nostr.Event { return match(i, at(0)-nostr.Timestamp(i), f) }),
		"foreign second":  flood(w, func(i int, f nostr.Filter) *nostr.Event { return match(i, 1_700_000_000, f) }),
		"duplicate flood": flood(w, func(int, nostr.Filter) *nostr.Event { return same }),
		"future flood":    flood(w, func(i int, f nostr.Filter) *nostr.Event { return match(i, at(-90*24*time.Hour), f) }),
		"huge tags": flood(temper{bulk: w.bulk / 50}, func(i int, f nostr.Filter) *nostr.Event {
			return match(i, at(time.Hour)-nostr.Timestamp(i), f, huge...)
		}),
		"endless foreign events": endless(func(n int, f nostr.Filter) *nostr.Event {
			return match(n, at(0)-nostr.Timestamp(n), f)
		}),
		"endless future": endless(func(n int, f nostr.Filter) *nostr.Event {
			return match(n, at(-time.Hour)+nostr.Timestamp(n), f)
		}),
		"endless repetition": endless(func(int, nostr.Filter) *nostr.Event { return same }),
	}
}

// liars are relays whose answers violate NIP-01 or NIP-77.
func liars(w temper) map[string]relaytest.Behavior {
	key := relaytest.NewCheapKey("liar")
	neg := func(payload ...byte) relaytest.Behavior {
		return relaytest.Behavior{Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
			if req.Type != wire.TypeNegOpen && req.Type != wire.TypeNegSend {
				return false
			}
			c.Send(wire.Message{Type: wire.TypeNegMsg, Sub: req.Sub, Payload: append([]byte{0x61}, payload...)})
			return true
		}}
	}
	hinted := func(hint wire.Hint) relaytest.Behavior {
		return relaytest.Behavior{Negentropy: relaytest.NegNotice, Handle: answer(func(c *relaytest.ConnScript, req wire.Request) {
			c.Send(wire.Message{Type: wire.TypeEOSE, Sub: req.Sub, Hint: hint})
		})}
	}
	return map[string]relaytest.Behavior{
		// A bound has a time, the length of an id prefix, and the prefix. A mode follows, 0 for
		// "skip".
		"NEG bounds decrease":     neg(6, 1, 0xff, 0, 1, 1, 0, 0),
		"NEG goes on after all":   neg(0, 0, 0, 6, 0, 0),
		"NEG without an end":      neg(6, 0, 0),
		"NEG unknown mode":        neg(0, 0, 9),
		"NEG version":             {Handle: neg(0, 0, 0).Handle, Negentropy: relaytest.NegGarbage},
		"NEG lies a lot":          {LyingNegentropy: 5 * w.bulk},
		"says there is more":      hinted(wire.HintMore),
		"says there is no more":   hinted(wire.HintFinish),
		"EOSE for everything":     hinted(wire.HintNone),
		"EOSE comes first":        reordered(),
		"answers closed requests": undead(key),
		"answers for another":     crossed(),
	}
}

// reordered sends EOSE before the events.
func reordered() relaytest.Behavior {
	return relaytest.Behavior{Negentropy: relaytest.NegNotice, Handle: answer(func(c *relaytest.ConnScript, req wire.Request) {
		c.Send(wire.Message{Type: wire.TypeEOSE, Sub: req.Sub})
		c.Answer(req)
	})}
}

// undead continues a closed subscription.
func undead(key *relaytest.Key) relaytest.Behavior {
	return relaytest.Behavior{Negentropy: relaytest.NegNotice, Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
		if req.Type == wire.TypeClose {
			for i := range 20 {
				c.SendAfter(time.Duration(i)*time.Second,
					wire.Message{Type: wire.TypeEvent, Sub: req.Sub, Event: eventtest.Of(key.Event(at(0), 1, fmt.Sprint(i)))},
					wire.Message{Type: wire.TypeEOSE, Sub: req.Sub}, wire.Message{Type: wire.TypeClosed, Sub: req.Sub})
			}
		}
		return false
	}}
}

// crossed sends the answer to a request under the id of the previous request.
func crossed() relaytest.Behavior {
	last := "none"
	return relaytest.Behavior{Negentropy: relaytest.NegNotice, Handle: answer(func(c *relaytest.ConnScript, req wire.Request) {
		for _, ev := range c.Relay().Query(req.Filters[0]) {
			c.Send(wire.Message{Type: wire.TypeEvent, Sub: last, Event: eventtest.Of(ev)})
		}
		last = req.Sub
		c.Send(wire.Message{Type: wire.TypeEOSE, Sub: req.Sub})
	})}
}

// fickle relays change their behavior.
func fickle(temper) map[string]relaytest.Behavior {
	// mood answers n requests and then none, or the other way round.
	mood := func(n int64, first bool) relaytest.Behavior {
		var seen atomic.Int64
		return relaytest.Behavior{Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
			if req.Type != wire.TypeReq && req.Type != wire.TypeNegOpen {
				return false
			}
			if usual := (seen.Add(1) <= n) == first; usual {
				return false
			}
			m := wire.Message{Type: wire.TypeClosed, Sub: req.Sub, Text: "error: I changed my mind"}
			if req.Type == wire.TypeNegOpen {
				m.Type = wire.TypeNegErr
			}
			c.Send(m)
			return true
		}}
	}
	return map[string]relaytest.Behavior{
		"works, then refuses": mood(4, true),
		"refuses, then works": mood(6, false),
		"flaps":               {OnConnect: func(c *relaytest.ConnScript) { c.CutAfter(30 * time.Second) }},
		"flaps slowly":        {OnConnect: func(c *relaytest.ConnScript) { c.CutAfter(90 * time.Second) }},
		"closes what is live": {Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
			if req.Type == wire.TypeReq && req.Filters[0].LimitZero {
				c.SendAfter(time.Second, wire.Message{Type: wire.TypeClosed, Sub: req.Sub, Text: "error: idle"})
			}
			return false
		}},
		"cuts at the second message": {CutAfter: 2},
	}
}
