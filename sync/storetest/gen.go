package storetest

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// start is the time of the oldest events of the suite.
const start nostr.Timestamp = 1_700_000_000

const (
	kindAnnouncement = 30617
	kindIssue        = 1621
	kindComment      = 1111
	kindVanish       = 62
	allRelays        = "ALL_RELAYS"
)

// gen generates events. The same seed gives the same events.
type gen struct {
	*rand.Rand
	serial int
}

func newGen(seed uint64) *gen { return &gen{Rand: rand.New(rand.NewPCG(seed, 34))} }

func (g *gen) key() string { return g.hex(32) }

func (g *gen) keys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = g.key()
	}
	return keys
}

func (g *gen) hex(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return hex.EncodeToString(b)
}

// time returns a time in the first seconds after start.
func (g *gen) time(seconds int) nostr.Timestamp { return start + nostr.Timestamp(g.IntN(seconds)) }

func pick[T any](g *gen, from []T) T { return from[g.IntN(len(from))] }

func (g *gen) event(author string, kind int, at nostr.Timestamp, tags ...nostr.Tag) *nostr.Event {
	g.serial++
	if tags == nil {
		tags = nostr.Tags{}
	}
	e := &nostr.Event{
		PubKey: author, Kind: kind, CreatedAt: at, Tags: tags,
		Content: fmt.Sprint("event ", g.serial), Sig: strings.Repeat("0", 128),
	}
	e.ID = e.GetID()
	return e
}

// notes returns n events by as many authors, three in a second.
func (g *gen) notes(n int) []*nostr.Event {
	events := make([]*nostr.Event, n)
	for i := range events {
		events[i] = g.event(g.key(), 1, start+nostr.Timestamp(i/3))
	}
	return events
}

// deletion returns a deletion of ids and addresses.
func (g *gen) deletion(author string, at nostr.Timestamp, named ...string) *nostr.Event {
	tags := make(nostr.Tags, len(named))
	for i, n := range named {
		tags[i] = nostr.Tag{"e", n}
		if strings.Contains(n, ":") {
			tags[i][0] = "a"
		}
	}
	return g.event(author, nostr.KindDeletion, at, tags...)
}

func (g *gen) vanish(author string, at nostr.Timestamp, relay string) *nostr.Event {
	return g.event(author, kindVanish, at, nostr.Tag{"relay"}, nostr.Tag{"r", allRelays}, nostr.Tag{"relay", relay})
}

func address(kind int, author, identifier string) string {
	return fmt.Sprintf("%d:%s:%s", kind, author, identifier)
}

func incoming(events ...*nostr.Event) []graspsync.Incoming {
	in := make([]graspsync.Incoming, len(events))
	for i, e := range events {
		in[i] = graspsync.Incoming{Event: eventtest.Of(e), Source: graspsync.Source{Kind: graspsync.CatchUp}}
	}
	return in
}
