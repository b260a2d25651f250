package sync_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

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
