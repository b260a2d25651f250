package relaytest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// TestAnswers sends one REQ to a relay with the events 1 to 5.
func TestAnswers(t *testing.T) {
	say := func(text string) func(wire.Request) string {
		return func(wire.Request) string { return text }
	}
	tagged := nostr.Filter{Tags: nostr.TagMap{"a": {"x", "yy"}, "e": {"z"}}}
	for _, test := range []struct {
		name string
		b    relaytest.Behavior
		f    []nostr.Filter
		want string
	}{
		{"honest", relaytest.Behavior{}, nil, "s1 5|s1 4|s1 3|s1 2|s1 1|s1 EOSE"},
		{"cap", relaytest.Behavior{Cap: 2}, nil, "s1 5|s1 4|s1 EOSE"},
		{"cap above limit", relaytest.Behavior{Cap: 2}, []nostr.Filter{limit(1)}, "s1 5|s1 EOSE"},
		{"cap below limit", relaytest.Behavior{Cap: 2}, []nostr.Filter{limit(4)}, "s1 5|s1 4|s1 EOSE"},
		{"cap of each filter", relaytest.Behavior{Cap: 1}, []nostr.Filter{limit(3), {Until: ts(3)}}, "s1 5|s1 3|s1 EOSE"},
		{"default limit", relaytest.Behavior{DefaultLimit: 1}, nil, "s1 5|s1 EOSE"},
		{"default limit overridden", relaytest.Behavior{DefaultLimit: 1}, []nostr.Filter{limit(2)}, "s1 5|s1 4|s1 EOSE"},
		{"ignores limit", relaytest.Behavior{Oddities: relaytest.Oddities{IgnoreLimit: true}, Cap: 3}, []nostr.Filter{limit(1)}, "s1 5|s1 4|s1 3|s1 EOSE"},
		{"ignores until", relaytest.Behavior{Oddities: relaytest.Oddities{IgnoreUntil: true}, Cap: 1}, []nostr.Filter{{Until: ts(2)}}, "s1 5|s1 EOSE"},
		{"wrong order", relaytest.Behavior{Oddities: relaytest.Oddities{WrongOrder: true}, Cap: 2}, nil, "s1 4|s1 5|s1 EOSE"},
		{"limit 0 returns stored", relaytest.Behavior{Oddities: relaytest.Oddities{LimitZeroReturnsStored: true}}, []nostr.Filter{limit(0)}, "s1 5|s1 4|s1 3|s1 2|s1 1|s1 EOSE"},
		{"never EOSE", relaytest.Behavior{Oddities: relaytest.Oddities{NeverEOSE: true}, Cap: 1}, nil, "s1 5"},
		{"hint finish", relaytest.Behavior{Hints: true}, []nostr.Filter{limit(5)}, "s1 5|s1 4|s1 3|s1 2|s1 1|s1 EOSE finish"},
		{"hint more", relaytest.Behavior{Hints: true}, []nostr.Filter{limit(1)}, "s1 5|s1 EOSE more"},
		{"hint live", relaytest.Behavior{Hints: true}, []nostr.Filter{limit(0)}, "s1 EOSE finish"},
		{"unasked", relaytest.Behavior{Hostility: relaytest.Hostility{UnaskedEvents: 2}, Cap: 1}, []nostr.Filter{{Until: ts(4), Since: ts(4)}}, "s1 5|s1 3|s1 4|s1 EOSE"},
		{"unasked made up", relaytest.Behavior{Hostility: relaytest.Hostility{UnaskedEvents: 1}, Cap: 1}, nil, "s1 nobody asked, 0|s1 5|s1 EOSE"},
		{"closed", relaytest.Behavior{ClosedReason: say("error: no")}, nil, "s1 CLOSED error: no"},
		{"not closed", relaytest.Behavior{ClosedReason: say(""), Cap: 1}, nil, "s1 5|s1 EOSE"},
		{"events after CLOSED", relaytest.Behavior{ClosedReason: say("error: no"), Oddities: relaytest.Oddities{EventsAfterClosed: true}, Cap: 1}, nil, "s1 CLOSED error: no|s1 5|s1 EOSE"},
		{"notice", relaytest.Behavior{Refusals: relaytest.Refusals{NoticeInstead: say("ERROR: what?")}}, nil, "NOTICE ERROR: what?"},
		{"notice and EOSE", relaytest.Behavior{Refusals: relaytest.Refusals{NoticeThenEOSE: say("oops")}}, nil, "NOTICE oops|s1 EOSE"},
		{"no notice", relaytest.Behavior{Refusals: relaytest.Refusals{NoticeThenEOSE: say(""), NoticeInstead: say("")}, Cap: 1}, nil, "s1 5|s1 EOSE"},
		{"closed as notice", relaytest.Behavior{ClosedReason: say("error: no"), Refusals: relaytest.Refusals{RefuseByNotice: true}}, nil, "NOTICE ERROR: error: no"},
		{"max filters", relaytest.Behavior{MaxFilters: 1}, []nostr.Filter{kind1, kind1}, "s1 CLOSED bad req: too many filters"},
		{"kindless", relaytest.Behavior{Refusals: relaytest.Refusals{RefuseKindless: true}}, []nostr.Filter{kind1, tagged}, "s1 CLOSED blocked: an author must be specified to get their kind:1 notes"},
		{"not kindless", relaytest.Behavior{Refusals: relaytest.Refusals{RefuseKindless: true}, Cap: 1}, nil, "s1 5|s1 EOSE"},
		{"kindless with ids", relaytest.Behavior{Refusals: relaytest.Refusals{RefuseKindless: true}}, []nostr.Filter{{IDs: []string{alice.Event(3, 1, "3").ID}}}, "s1 3|s1 EOSE"},
		{"value too long", relaytest.Behavior{Refusals: relaytest.Refusals{RefuseValueOver: 1}}, []nostr.Filter{tagged}, "s1 CLOSED bad req: filter item too large"},
		{"value not too long", relaytest.Behavior{Refusals: relaytest.Refusals{RefuseValueOver: 2}}, []nostr.Filter{tagged}, "s1 EOSE"},
		{"tag names", relaytest.Behavior{Refusals: relaytest.Refusals{RefuseTagNamesOver: 1}}, []nostr.Filter{tagged}, "s1 CLOSED bad req: too many tags in filter"},
		{"tag values", relaytest.Behavior{Refusals: relaytest.Refusals{RefuseTagValuesOver: 1}}, []nostr.Filter{tagged}, "NOTICE too many tag values|s1 EOSE"},
		{"auth required", relaytest.Behavior{Auth: relaytest.AuthRequired}, nil, "AUTH challenge-1|s1 CLOSED auth-required: all requests must be authenticated"},
		{"auth offered", relaytest.Behavior{Auth: relaytest.AuthOffered, Cap: 1}, nil, "AUTH challenge-1|s1 5|s1 EOSE"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := relay(test.b)
				r.Publish(notes(alice, 1, 5)...)
				c := connect(t, r)
				if test.f == nil {
					test.f = []nostr.Filter{kind1}
				}
				c.req(test.f...)
				assert.Equal(t, strings.Split(test.want, "|"), c.rest())
			})
		})
	}
}

func TestTooManySubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := relay(relaytest.Behavior{MaxSubs: 2})
		c := connect(t, r)
		for range 3 {
			c.req(limit(0))
		}
		assert.Equal(t, []string{"s1 EOSE", "s2 EOSE", "NOTICE ERROR: too many concurrent REQs"}, c.script(3))
		c.send(wire.Request{Type: wire.TypeClose, Sub: "s1"})
		c.req(limit(0))
		c.send(wire.Request{Type: wire.TypeReq, Sub: "s2", Filters: []nostr.Filter{kind1}}) // replaces
		assert.Equal(t, []string{"s4 EOSE", "s2 EOSE"}, c.script(2))
		for _, id := range []string{"a", "b", "c"} {
			c.send(wire.Request{Type: wire.TypeNegOpen, Sub: id, Filters: []nostr.Filter{kind1}, Payload: []byte{0x61}})
		}
		assert.Equal(t, []string{"a NEG-MSG 61", "b NEG-MSG 61", "NOTICE ERROR: too many concurrent NEG requests"}, c.script(3))
		c.send(wire.Request{Type: wire.TypeNegClose, Sub: "a"})
		c.send(wire.Request{Type: wire.TypeNegOpen, Sub: "d", Filters: []nostr.Filter{kind1}, Payload: []byte{0x61}})
		assert.Equal(t, []string{"d NEG-MSG 61"}, c.rest())
	})
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := relay(relaytest.Behavior{RateLimit: 2})
		c := connect(t, r)
		c.req(kind1)
		time.Sleep(30 * time.Second)
		c.req(kind1)
		for range 5 {
			c.req(limit(0)) // not counted
		}
		c.script(7)
		c.req(kind1)
		c.send(wire.Request{Type: wire.TypeNegOpen, Sub: "n", Filters: []nostr.Filter{kind1}, Payload: []byte{0x61}})
		assert.Equal(t, []string{"s8 CLOSED rate-limited: slow down, please", "n NEG-ERR rate-limited: slow down, please 0"}, c.script(2))
		r.Update(func(b *relaytest.Behavior) { b.RateLimitNotice = true })
		c.req(kind1)
		assert.Equal(t, []string{"NOTICE rate-limited: slow down, please"}, c.script(1))
		time.Sleep(30 * time.Second) // the first one is now a minute old
		c.req(kind1)
		c.req(kind1)
		assert.Equal(t, []string{"s10 EOSE", "NOTICE rate-limited: slow down, please"}, c.rest())
	})
}

func TestForgeries(t *testing.T) {
	for _, key := range []*relaytest.Key{alice, relaytest.NewKey("alice")} {
		ev := key.Event(1, 1, "x")
		valid := func(ev *nostr.Event) bool {
			if key == alice {
				return relaytest.CheapVerifier{}.Verify([]*nostr.Event{ev})[0] == nil
			}
			ok, err := ev.CheckSignature()
			return ok && err == nil
		}
		for _, test := range []struct {
			name          string
			forge         relaytest.Forgery
			idOK, sigOK   bool
			sameAuthor    bool
			contentIsReal bool
		}{
			{"signature", relaytest.ForgeSignature, true, false, true, true},
			{"content", relaytest.ForgeContent, false, false, true, false},
			{"id", relaytest.ForgeID, false, true, false, false},
		} {
			t.Run(test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := relay(relaytest.Behavior{Hostility: relaytest.Hostility{Forge: test.forge}})
					r.Publish(ev)
					c := connect(t, r)
					for range 2 {
						c.req(kind1)
						m := c.receive().Event
						assert.Equal(t, ev.ID, m.ID.String())
						assert.Len(t, m.Sig, 128)
						assert.Equal(t, test.idOK, m.CheckID())
						assert.Equal(t, test.sigOK, valid(m.Event))
						assert.Equal(t, test.sameAuthor, m.PubKey.String() == ev.PubKey)
						assert.Equal(t, test.contentIsReal, m.Content == ev.Content)
						c.receive()
					}
					r.Update(func(b *relaytest.Behavior) { b.ForgeFirst = true })
					c.req(limit(1))
					assert.NotEqual(t, ev, c.receive().Event.Event)
					assert.Equal(t, ev, c.receive().Event.Event)
				})
			})
		}
	}
}

func TestAuth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := relay(relaytest.Behavior{Auth: relaytest.AuthRequired})
		c := connect(t, r)
		challenge := c.receive().Text
		auth := func(kind int, tags ...nostr.Tag) {
			c.send(wire.Request{Type: wire.TypeAnswer, Event: alice.Event(1, kind, "", tags...)})
		}
		auth(1)
		auth(22242, nostr.Tag{"challenge", "wrong"}, nostr.Tag{"relay", "wss://a.example"})
		auth(22242, nostr.Tag{"challenge", challenge}, nostr.Tag{"relay", "wss://b.example"})
		assert.Equal(t, []string{"OK false invalid: kind", "OK false invalid: challenge", "OK false invalid: relay"}, c.script(3))
		forged := *alice.Event(1, 22242, "", nostr.Tag{"challenge", challenge}, nostr.Tag{"relay", "wss://a.example"})
		forged.Content = "x"
		c.send(wire.Request{Type: wire.TypeAnswer, Event: &forged})
		c.req(kind1)
		assert.Equal(t, []string{"OK false invalid: id or signature", "s1 CLOSED auth-required: all requests must be authenticated"}, c.script(2))
		auth(22242, nostr.Tag{"challenge", challenge}, nostr.Tag{"relay", "wss://A.example/"})
		c.req(kind1)
		assert.Equal(t, []string{"OK true ", "s2 EOSE"}, c.script(2))
		assert.Empty(t, r.Violations())
		r.Update(func(b *relaytest.Behavior) { b.Auth = relaytest.AuthRestricted })
		c.req(kind1)
		assert.Equal(t, []string{"s3 CLOSED restricted: not on the list"}, c.rest())
	})
}

func TestScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		notice := func(s string) wire.Message { return wire.Message{Type: wire.TypeNotice, Text: s} }
		r := relay(relaytest.Behavior{
			OnConnect: func(c *relaytest.ConnScript) {
				c.Send(notice("welcome"))
				c.Send()
			},
			Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
				switch req.Sub {
				case "s1":
					c.SendAfter(time.Minute, notice("later"))
					c.Raw([]byte(`["EVENT","`))
					c.Answer(req)
					return true
				case "s2":
					return false
				}
				assert.Equal(t, 1, c.Conn())
				c.Relay().Publish(notes(alice, 7, 1)...)
				c.CutAfter(time.Hour)
				return true
			},
		})
		r.Publish(notes(alice, 1, 1)...)
		c := connect(t, r)
		start := time.Now()
		c.req(kind1)
		c.req(kind1)
		assert.Equal(t, []string{"NOTICE welcome", "s1 1", "s1 EOSE", "s2 1", "s2 EOSE", "NOTICE later"}, c.script(6))
		assert.Equal(t, time.Minute, since(start))
		c.req(kind1)
		r.Broadcast(notice("to all"))
		assert.Equal(t, []string{"s1 7", "s2 7", "NOTICE to all"}, c.script(3))
		_, err := c.Receive(t.Context())
		require.ErrorIs(t, err, relaysync.ErrClosed)
		assert.Equal(t, time.Minute+time.Hour, since(start))
		r.Broadcast(notice("nobody there"))
	})
}
