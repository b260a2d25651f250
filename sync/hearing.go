package sync

import (
	"maps"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// maxHeard is of how many people it is remembered that what they say counts, of all
// identifiers together. Of an identifier that is forgotten all that waits is judged again
// with the next announcement.
const maxHeard = 100_000

// hearing is whose word counts under which identifiers, as far as it was asked and nothing
// was judged since that shows otherwise: what is by those who have gained something is judged
// again. True is for those whose states count as well. It belongs to the writer.
type hearing struct {
	of     map[string]map[graspsync.PubKey]bool
	people int
}

// gained returns what is fulfilled by who is heard now and was not, and remembers who is.
func (h *hearing) gained(identifier string, heard map[graspsync.PubKey]bool) (keys []pending.Key) {
	before := h.of[identifier]
	for k, say := range heard {
		had, was := before[k]
		if !was {
			keys = append(keys, pending.KeyOf(graspsync.OnWanted(identifier, k)))
		}
		if say && !had {
			keys = append(keys, pending.KeyOf(graspsync.OnSay(identifier, k)))
		}
	}
	h.forget(identifier)
	if len(heard) == 0 || len(heard) > maxHeard {
		return keys
	}
	for other := range h.of {
		if h.people+len(heard) <= maxHeard {
			break
		}
		h.forget(other)
	}
	h.people += len(heard)
	lazy.Put(&h.of, identifier, maps.Clone(heard))
	return keys
}

func (h *hearing) forget(identifier string) {
	h.people -= len(h.of[identifier])
	delete(h.of, identifier)
}

// waits takes note of what an event waits for now: whoever has to gain that has lost it.
func (h *hearing) waits(deps []graspsync.Dependency) {
	for _, d := range deps {
		heard := h.of[d.Text]
		say, is := heard[d.Author]
		switch {
		case !is:
		case d.Await == graspsync.AwaitSay && say:
			heard[d.Author] = false
		case d.Await == graspsync.AwaitWanted:
			delete(heard, d.Author)
			h.people--
		}
	}
}
