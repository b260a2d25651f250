package pending

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Key is a hash of a dependency. A collision only costs an additional judgement.
type Key uint64

// KeyOf returns the key of a dependency.
func KeyOf(d graspsync.Dependency) Key {
	buf := make([]byte, 0, 128)
	buf = append(buf, byte(d.Kind))
	buf = append(buf, d.ID[:]...)
	buf = append(buf, d.Author[:]...)
	sum := sha256.Sum256(append(buf, d.Text...))
	return Key(binary.BigEndian.Uint64(sum[:]))
}

// MaxDependencies is the maximum number of dependencies per event, more than any event has tags.
// [limit.Table] bounds the memory of all events together.
const MaxDependencies = 10_000

// KeysOf returns the sorted unique keys of the first [MaxDependencies] dependencies.
func KeysOf(deps []graspsync.Dependency) []Key {
	keys := make([]Key, 0, min(len(deps), MaxDependencies))
	for _, d := range deps[:min(len(deps), MaxDependencies)] {
		keys = append(keys, KeyOf(d))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// maxFulfilled is the maximum number of keys that one event fulfils.
const maxFulfilled = 1_000

// Fulfils returns the keys of dependencies that the acceptance of ev fulfils. If stored is true, it
// adds the dependencies that its storage fulfils.
func Fulfils(ev graspsync.Event, stored bool) (keys []Key) {
	add := func(d graspsync.Dependency) {
		if len(keys) < maxFulfilled {
			keys = append(keys, KeyOf(d))
		}
	}
	add(graspsync.OnEvent(ev.ID))
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		add(graspsync.OnRepo(a.Ref))
		add(graspsync.OnMaintainer(a.Ref.Identifier, ev.PubKey))
		for _, m := range a.Maintainers {
			add(graspsync.OnMaintainer(a.Ref.Identifier, m))
		}
	}
	if c, ok := ev.Address(); ok {
		add(graspsync.OnVersion(c))
	}
	if stored {
		add(graspsync.OnAuthor(ev.PubKey))
	}
	if ev.Kind != graspsync.KindDeletion {
		for _, other := range nip34.EventRefs(ev.Event) {
			add(graspsync.OnMention(other))
		}
		for _, a := range nip34.Addresses(ev.Event) {
			if _, ok := a.Repo(); !ok {
				add(graspsync.OnVersionMention(a))
			}
		}
	}
	return keys
}
