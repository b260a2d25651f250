package sync_test

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// fetchClaims is a relay that claims by NIP-77 to have any number of events, with a fixed number of
// ids per message. It serves the few events that it has, and does not answer where it is mute.
type fetchClaims struct {
	messages, each int
	real           map[string]*nostr.Event // by id; each message contains all of them, one in a hundred ids
	mute           bool

	opened, served atomic.Int64
	sessions       map[string]int // messages of each so far
	only           int64          // maximum number of reconciliations that find an event; 0: all
}

func (c *fetchClaims) behavior() relaytest.Behavior {
	c.sessions = make(map[string]int)
	return relaytest.Behavior{Handle: c.handle}
}

func (c *fetchClaims) handle(s *relaytest.ConnScript, req wire.Request) bool {
	switch req.Type {
	case wire.TypeNegOpen, wire.TypeNegSend:
		key := fmt.Sprint(s.Conn(), req.Sub)
		n := c.sessions[key]
		c.sessions[key]++
		if req.Type == wire.TypeNegOpen && c.opened.Add(1) > c.only && c.only > 0 {
			s.Send(wire.Message{Type: wire.TypeNegMsg, Sub: req.Sub, Payload: []byte{0x61}, Size: 20})
			return true
		}
		if n < c.messages {
			p := c.claim(key, n)
			s.Send(wire.Message{Type: wire.TypeNegMsg, Sub: req.Sub, Payload: p, Size: 2 * len(p)})
		}
		return true
	case wire.TypeReq:
		asked := false
		for _, f := range req.Filters {
			asked = asked || len(f.IDs) > 0
			for _, id := range f.IDs {
				if ev := c.real[id]; ev != nil {
					c.served.Add(1)
					parsed, _ := graspsync.ParseEvent(ev)
					s.Send(wire.Message{Type: wire.TypeEvent, Sub: req.Sub, Event: parsed, Size: 400})
				}
			}
		}
		if asked && !c.mute {
			s.Send(wire.Message{Type: wire.TypeEOSE, Sub: req.Sub, Size: 20})
		}
		return asked
	}
	return false
}

// claim returns message n of a reconciliation: one second full of ids, and a fingerprint of the
// following times except in the last message.
func (c *fetchClaims) claim(key string, n int) []byte {
	from, to := uint64(0), uint64(1000+n)
	out := []byte{0x61}
	if n > 0 {
		from = to - 1
		out = append(varint(out, from+1), 0, 0) // skipped
	}
	out = varint(append(varint(out, to-from+1), 0, 2), uint64(c.each))
	ids := make([]string, 0, c.each)
	for id := range c.real {
		ids = append(ids, id)
	}
	for i := range c.each {
		id := [32]byte{1}
		copy(id[1:], key)
		binary.BigEndian.PutUint64(id[24:], uint64(n*c.each+i)) //nolint:gosec // small
		if k := i / 100; i%100 == 0 && k < len(ids) {
			id, _ = graspsync.ParseEventID(ids[k])
		}
		out = append(out, id[:]...)
	}
	if n < c.messages-1 {
		out = append(append(out, 0, 0, 1), make([]byte, 16)...)
	}
	return out
}

func varint(b []byte, n uint64) []byte {
	var tmp []byte
	for tmp = append(tmp, byte(n&127)); n > 127; {
		n >>= 7
		tmp = append([]byte{byte(n&127) | 128}, tmp...)
	}
	return append(b, tmp...)
}

// Claimed ids took 6 MB per reconciliation for half an hour, for any number of reconciliations.
// Fifteen relays of one attacker exhausted a server with 8 GB. Now the room is shared, and a relay
// that does not serve its claims gets less and takes no room from others.
func TestClaimedIDsHaveRoomInCommon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		owner, stranger := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("stranger")
		r := &rig{t: t, store: memstore.New()}
		r.save(owner.Hosted(at(24*time.Hour), "repo", us, "honest.example"))
		honest := net.Add("wss://honest.example", relaytest.Behavior{})
		var events []*nostr.Event
		for i := range 3_000 {
			events = append(events, owner.Issue(at(time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
			honest.Publish(events[i])
		}
		var hostile []*fetchClaims
		for i := range 2 {
			hosts := []string{us}
			for k := range 10 {
				c := &fetchClaims{messages: 5, each: 28_000, mute: true}
				hostile = append(hostile, c)
				hosts = append(hosts, fmt.Sprintf("h%d-%d.example", i, k))
				net.Add("wss://"+hosts[k+1], c.behavior())
			}
			name := fmt.Sprint("repo", i)
			r.save(stranger.Hosted(at(24*time.Hour), name, hosts...))
			for k := range 50 {
				r.save(stranger.Issue(at(23*time.Hour), stranger.Ref(name), fmt.Sprint(k)))
			}
		}
		r = start(t, net, r.store, relaysync.Config{})
		defer r.stop() // and all room is given back
		after(20 * time.Second)
		for _, c := range hostile {
			require.LessOrEqual(t, c.opened.Load(), int64(3)) // two slots, and one reconciliation that left its slot early
		}
		require.Negative(t, r.manager.ClaimRoom(), "each has its least")
		after(10 * time.Minute)
		for _, ev := range events {
			require.True(t, r.has(ev))
		}
	})
}
