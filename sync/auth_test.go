package sync_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// signer signs correctly, or with the change of tamper.
type signer struct {
	key    string
	asked  atomic.Int64
	tamper func(ctx context.Context, ev *nostr.Event) error
}

func newSigner() *signer { return &signer{key: relaytest.NewKey("signer").Secret()} }

func (s *signer) SignAuth(ctx context.Context, ev *nostr.Event) error {
	s.asked.Add(1)
	if s.tamper != nil {
		if err := s.tamper(ctx, ev); err != nil {
			return err
		}
	}
	return ev.Sign(s.key)
}

// answers returns the number of AUTH messages that a relay received.
func answers(r *relaytest.Relay) int { return len(r.Requests(wire.TypeAnswer)) }

// AUTH is signed only after a refusal that requires it, once per connection, for the dialed URL.
func TestPromiseP10_AuthOncePerConnection(t *testing.T) {
	for _, tt := range []struct {
		mode   relaytest.AuthMode
		signed int64
	}{{relaytest.AuthOffered, 0}, {relaytest.AuthRequired, 2}, {relaytest.AuthRestricted, 2}} {
		bubble(t, func(t *testing.T) {
			s := newSigner()
			c := crowded(t, relaytest.Behavior{Auth: tt.mode}, relaysync.Config{Signer: s}, 3)
			defer c.stop()
			after(20 * time.Minute)
			c.relay.Cut()
			after(2 * time.Hour)
			require.Equal(t, tt.signed, s.asked.Load())
			require.Equal(t, int(tt.signed), answers(c.relay))
			for _, seen := range c.relay.Requests(wire.TypeAnswer) {
				require.Equal(t, "wss://a.example", seen.Request.Event.Tags.Find("relay")[1])
			}
			require.Equal(t, tt.mode == relaytest.AuthRestricted, len(c.lacks(c.issues)) > 0)
			require.Empty(t, c.violations())
		})
	}
}

// Without a signer, or with a failing one, the relay's refusal is reported, and requests are not
// repeated quickly.
func TestAuthWithoutSigner(t *testing.T) {
	broken := func(f func(context.Context, *nostr.Event) error) relaysync.Signer {
		s := newSigner()
		s.tamper = f
		return s
	}
	for name, s := range map[string]relaysync.Signer{
		"none":   nil,
		"fails":  broken(func(context.Context, *nostr.Event) error { return errors.New("key is gone") }),
		"panics": broken(func(context.Context, *nostr.Event) error { panic("oops") }),
		"hangs":  broken(func(ctx context.Context, _ *nostr.Event) error { <-ctx.Done(); return ctx.Err() }),
		"other relay": broken(func(_ context.Context, ev *nostr.Event) error {
			ev.Tags[0][1] = "wss://other.example"
			return nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := crowded(t, relaytest.Behavior{Auth: relaytest.AuthRequired}, relaysync.Config{Signer: s}, 3)
				defer c.stop()
				after(10 * time.Minute)
				require.Zero(t, answers(c.relay))
				st := c.rig.relay("wss://a.example")
				require.NotEmpty(t, st.LastError)
				require.Equal(t, uint64(1), st.Connects)
				require.False(t, st.Synced)
				before := len(c.relay.Requests())
				require.Less(t, before, 30)
				after(45 * time.Minute)
				require.Less(t, len(c.relay.Requests())-before, 5, "it is not hammered")
				after(6 * time.Hour)
				require.Less(t, len(c.relay.Requests())-before, 100)
				c.relay.Update(func(b *relaytest.Behavior) { b.Auth = relaytest.AuthNone })
				after(2 * time.Hour)
				require.Empty(t, c.lacks(c.issues))
			})
		})
	}
}

// An authentication that failed once or expired proves nothing about the next connection. Before,
// the relay was unused until its connection ended for another reason.
func TestAuthThatMayPass(t *testing.T) {
	racetest.Amounts(t)
	const expires = 2 * time.Hour
	for name, first := range map[string]func(c *relaytest.ConnScript, id graspsync.EventID) (accepts bool){
		"no answer": func(*relaytest.ConnScript, graspsync.EventID) bool { return false },
		"its error": func(c *relaytest.ConnScript, id graspsync.EventID) bool {
			c.Send(wire.Message{Type: wire.TypeOK, ID: id, Text: "error: could not reach the database", Size: 100})
			return false
		},
		"runs out": nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				var mu sync.Mutex
				var auths int
				authed := make(map[int]bool)
				a := net.Add("wss://a.example", relaytest.Behavior{
					OnConnect: func(c *relaytest.ConnScript) {
						c.Send(wire.Message{Type: wire.TypeAuth, Text: "one", Size: 20})
						if first != nil || c.Conn() > 1 {
							return
						}
						time.AfterFunc(expires, func() {
							mu.Lock()
							authed[c.Conn()] = false
							mu.Unlock()
							c.Send(wire.Message{Type: wire.TypeAuth, Text: "two", Size: 20})
							for _, s := range c.Relay().Subscriptions() {
								c.Send(wire.Message{Type: wire.TypeClosed, Sub: s.ID, Text: "auth-required: session expired", Size: 60})
							}
						})
					},
					Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
						mu.Lock()
						defer mu.Unlock()
						if asks(req) && !authed[c.Conn()] {
							c.Send(refusalOf(req, "auth-required: who are you"))
							return true
						}
						if req.Type != wire.TypeAnswer {
							return false
						}
						id, _ := graspsync.ParseEventID(req.Event.ID)
						if auths++; auths == 1 && first != nil && !first(c, id) {
							return true
						}
						authed[c.Conn()] = true
						c.Send(wire.Message{Type: wire.TypeOK, ID: id, Accepted: true, Size: 100})
						return true
					},
				})
				r, owner := hosted(t, net, relaysync.Config{Signer: newSigner()}, "a.example")
				defer r.stop()
				after(30 * time.Minute)
				if first != nil {
					s := r.relay("wss://a.example")
					require.Equal(t, uint64(1), s.Connects, "it is not signed for again and again")
					require.Empty(t, s.Following, "nothing is followed")
				}
				after(3 * time.Hour)
				issue := owner.Issue(at(0), owner.Ref("repo"), "issue")
				a.Publish(issue)
				after(time.Minute)
				require.True(t, r.has(issue))
				s := r.relay("wss://a.example")
				require.Equal(t, uint64(2), s.Connects)
				require.Equal(t, "live", s.Following)
				require.Equal(t, 2, answers(a))
			})
		})
	}
}

// A relay that accepts authentication and still refuses requests is tried on a new connection from
// time to time, but not repeatedly in a short time.
func TestAuthThatIsNeverEnough(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{
			OnConnect: func(c *relaytest.ConnScript) { c.Send(wire.Message{Type: wire.TypeAuth, Text: "one", Size: 20}) },
			Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
				if asks(req) {
					c.Send(refusalOf(req, "auth-required: who are you"))
				}
				if req.Type == wire.TypeAnswer {
					id, _ := graspsync.ParseEventID(req.Event.ID)
					c.Send(wire.Message{Type: wire.TypeOK, ID: id, Accepted: true, Size: 100})
				}
				return true
			},
		})
		r, _ := hosted(t, net, relaysync.Config{Signer: newSigner()}, "a.example")
		defer r.stop()
		after(24 * time.Hour)
		require.Greater(t, answers(a), 5)
		require.LessOrEqual(t, answers(a), 24)
	})
}

// forger signs another event than the one it was given.
type forger struct {
	*signer
	forge func(ev *nostr.Event)
}

func (f forger) SignAuth(ctx context.Context, ev *nostr.Event) error {
	err := f.signer.SignAuth(ctx, ev)
	f.forge(ev)
	return err
}

// The result of a Signer is checked before it is sent, because a relay could use a wrong event
// elsewhere.
func TestAuthIsChecked(t *testing.T) {
	for name, forge := range map[string]func(ev *nostr.Event){
		"signature": func(ev *nostr.Event) { ev.Sig = relaytest.NewCheapKey("x").Event(0, 1, "").Sig },
		"id":        func(ev *nostr.Event) { ev.ID = relaytest.NewCheapKey("x").Event(0, 1, "").ID },
		"kind":      func(ev *nostr.Event) { ev.Kind = 1 },
		"other event": func(ev *nostr.Event) {
			other := relaytest.NewKey("signer").Event(ev.CreatedAt, 1, "signed by mistake")
			*ev = *other
		},
		"nothing": func(ev *nostr.Event) { *ev = nostr.Event{} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := crowded(t, relaytest.Behavior{Auth: relaytest.AuthRequired}, relaysync.Config{Signer: forger{newSigner(), forge}}, 1)
				defer c.stop()
				after(10 * time.Minute)
				require.Zero(t, answers(c.relay))
			})
		})
	}
}
