package sync

import (
	"maps"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// maxHeard is the maximum number of people in hearing, of all identifiers together. If an identifier is
// evicted, all its pending events are judged again with the next announcement.
const maxHeard = 100_000

// hearing contains the people whose events count, by identifier, as they were at the last check, without
// the people of whom an event was rejected since. If somebody is added, their pending events are judged
// again. The value is true for people whose states count as well. It belongs to the writer.
type hearing struct {
	of *limit.Table[string, map[graspsync.PubKey]bool]
}

func newHearing() hearing {
	return hearing{limit.NewTable[string, map[graspsync.PubKey]bool](maxHeard, maxHeard)}
}

// gained records who is heard now, and returns the keys of the people who were not heard before.
func (h hearing) gained(identifier string, heard map[graspsync.PubKey]bool) (keys []pending.Key) {
	before, _ := h.of.Get(identifier)
	for k, say := range heard {
		had, was := before[k]
		if !was {
			keys = append(keys, pending.KeyOf(graspsync.OnWanted(identifier, k)))
		}
		if say && !had {
			keys = append(keys, pending.KeyOf(graspsync.OnSay(identifier, k)))
		}
	}
	h.of.Delete(identifier)
	if len(heard) > 0 {
		h.of.Put(identifier, limit.Stranger{}, int64(len(heard)), maps.Clone(heard))
	}
	return keys
}

// waits takes note of the dependencies of a pending event: people that it waits for are not heard yet.
func (h hearing) waits(deps []graspsync.Dependency) {
	for _, d := range deps {
		heard, _ := h.of.Get(d.Text)
		say, is := heard[d.Author]
		switch {
		case !is:
		case d.Await == graspsync.AwaitSay && say:
			heard[d.Author] = false
		case d.Await == graspsync.AwaitWanted:
			delete(heard, d.Author)
		}
	}
}
