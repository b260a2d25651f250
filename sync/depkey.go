package sync

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// depKey stands for a dependency where many are remembered. Two that share a key
// cost a second look.
type depKey uint64

func keyOf(d graspsync.Dependency) depKey {
	buf := make([]byte, 0, 128)
	buf = append(buf, byte(d.Await))
	buf = append(buf, d.ID[:]...)
	buf = append(buf, d.Author[:]...)
	sum := sha256.Sum256(append(buf, d.Text...))
	return depKey(binary.BigEndian.Uint64(sum[:]))
}

// maxDependencies is how many things an event may wait for: more tags than any event
// has. What that takes is bounded for all events together, see [rejected].
const maxDependencies = 10_000

func keysOf(deps []graspsync.Dependency) []depKey {
	keys := make([]depKey, 0, min(len(deps), maxDependencies))
	for _, d := range deps[:min(len(deps), maxDependencies)] {
		keys = append(keys, keyOf(d))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// addressKey is what older versions of an event wait for; false for kinds that have
// none.
func addressKey(ev *nostr.Event) (depKey, bool) {
	c, ok := graspsync.AddressOf(ev)
	if !ok {
		return 0, false
	}
	return keyOf(graspsync.Dependency{Await: graspsync.AwaitAddress, Text: c.String()}), true
}

// maxFulfilled bounds what one event has others judged again for.
const maxFulfilled = 1_000

// fulfils returns what events may have waited for that ev was accepted, and if it
// is stored now, for that.
func fulfils(ev *nostr.Event, stored bool) (keys []depKey) {
	id, err := graspsync.ParseEventID(ev.ID)
	author, err2 := graspsync.ParsePubKey(ev.PubKey)
	if err != nil || err2 != nil {
		return nil
	}
	add := func(d graspsync.Dependency) {
		if len(keys) < maxFulfilled {
			keys = append(keys, keyOf(d))
		}
	}
	add(graspsync.OnEvent(id))
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		add(graspsync.OnRepo(a.Ref))
		add(graspsync.OnIdentifier(a.Ref.Identifier))
		add(graspsync.OnMaintainer(a.Ref.Identifier, author))
		for _, m := range a.Maintainers {
			add(graspsync.OnMaintainer(a.Ref.Identifier, m))
		}
	}
	if c, ok := graspsync.AddressOf(ev); ok {
		add(graspsync.OnVersion(c))
	}
	if stored {
		add(graspsync.OnAuthor(author))
	}
	if ev.Kind != graspsync.KindDeletion {
		for _, other := range nip34.EventRefs(ev) {
			add(graspsync.OnMention(other))
		}
		for _, a := range nip34.Addresses(ev) {
			if _, ok := a.Repo(); !ok {
				add(graspsync.OnVersionMention(a))
			}
		}
	}
	return keys
}
