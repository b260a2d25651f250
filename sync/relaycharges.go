package sync

import (
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

var errUnproductive = errors.New("relay sends nothing that is of use")

var (
	errHung    = errors.New("connection hangs") // a silent relay
	errHostile = errors.New("hostile relay")
)

func newUnproductive(c *constants) *limit.Rate {
	return limit.NewRate(float64(c.Refill)/60, int(c.Unproductive), c.MaxRelays)
}

func (c *relayConn) charge(msg wire.Message, actions []session.Action) {
	cost := int64(0)
	switch msg.Type {
	case wire.TypeEvent:
		if !delivers(actions) || c.repeated(msg.Sub, msg.Event.ID) {
			cost = int64(msg.Size)
		}
	case wire.TypeEOSE, wire.TypeClosed, wire.TypeNegMsg, wire.TypeNegErr:
		if len(actions) == 0 {
			cost = int64(msg.Size)
		}
	default: // notices, and answers to requests that were never sent
		cost = int64(msg.Size)
	}
	n := c.conn.Traffic().DroppedBytes
	cost += int64(n - c.dropped)
	c.dropped = n
	if cost > 0 {
		c.spend(cost)
	}
}

// seenSlots makes 64 KiB.
const seenSlots = 8 << 10

// repeated reports whether the relay sent the event on this subscription before. In its lossy hash
// table later events replace earlier ones.
func (c *relayConn) repeated(sub string, id graspsync.EventID) bool {
	if c.seen == nil {
		c.seed, c.seen = maphash.MakeSeed(), make([]uint64, seenSlots)
	}
	sum := maphash.Comparable(c.seed, struct {
		sub string
		id  graspsync.EventID
	}{sub, id})
	slot := &c.seen[sum%seenSlots]
	if *slot == sum {
		return true
	}
	*slot = sum
	return false
}

func delivers(actions []session.Action) bool {
	for _, a := range actions {
		if _, ok := a.(session.Deliver); ok {
			return true
		}
	}
	return false
}

func (c *relayConn) strike(a session.Strike) {
	c.stats.strikes.Add(1)
	c.m.telemetry.remote(slog.LevelDebug, c.url, "relay violated the protocol", keyReason, graspsync.Printable(a.Reason))
	if a.Last {
		c.end(fmt.Errorf("%w: %s", errHostile, a.Reason))
	}
}

// forgeries is the number of forged events that use up the allowance Unproductive.
const forgeries = 2_000

func (c *relayConn) forged(reason string) {
	c.m.telemetry.forged.Add(1)
	c.spend(c.m.cfg.constants.Unproductive / forgeries)
	c.mailbox.put(connMessage{action: session.Strike{Reason: reason}})
}

// badSignature counts a copy of an event with a wrong signature. Each is charged for its check.
func (c *relayConn) badSignature(k copyKey) {
	if c.stats.addBad(k) {
		c.forged("signature does not match")
		return
	}
	c.m.telemetry.forged.Add(1)
	c.spend(c.m.cfg.constants.Unproductive / forgeries)
}

// spend takes n bytes out of the allowance of the relay's host, and ends the connection without
// rest. Any goroutine may call it.
func (c *relayConn) spend(n int64) {
	if !c.m.unproductive.Allow(c.stats.host, int(n)) {
		c.end(errUnproductive)
	}
}
