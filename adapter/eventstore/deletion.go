package eventstoreadapter

import (
	"context"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// lookUpAtOnce is for how many events deletions are looked up in one query.
const lookUpAtOnce = 100

// tombstonesOf returns the deletions and requests to vanish that are stored and may
// cover any of the events.
func (s *Store) tombstonesOf(ctx context.Context, events []*nostr.Event) (*nip34.Tombstones, error) {
	t := nip34.NewTombstones(s.cfg.Identity)
	for chunk := range slices.Chunk(events, lookUpAtOnce) {
		ids, addrs := nostr.Filter{Kinds: []int{graspsync.KindDeletion}}, nostr.Filter{Kinds: []int{graspsync.KindDeletion}}
		gone := nostr.Filter{Kinds: []int{graspsync.KindVanish}}
		for _, e := range chunk {
			gone.Authors = append(gone.Authors, e.PubKey)
			if e.Kind == graspsync.KindDeletion {
				continue
			}
			ids.Authors = append(ids.Authors, e.PubKey)
			ids.Tags = addTag(ids.Tags, "e", e.ID)
			if addr, ok := graspsync.AddressOf(e); ok {
				addrs.Authors = append(addrs.Authors, e.PubKey)
				addrs.Tags = addTag(addrs.Tags, "a", addr.String())
			}
		}
		for _, f := range []nostr.Filter{ids, addrs, gone} {
			if f.Tags == nil && f.Kinds[0] == graspsync.KindDeletion {
				continue
			}
			f.Authors = unique(f.Authors)
			err := s.walk(ctx, f, func(_ graspsync.EventID, d *nostr.Event) bool {
				t.Add(d)
				return true
			})
			if err != nil {
				return t, err
			}
		}
	}
	return t, ctx.Err()
}

func addTag(tags nostr.TagMap, name, value string) nostr.TagMap {
	if tags == nil {
		tags = make(nostr.TagMap, 1)
	}
	tags[name] = append(tags[name], value)
	return tags
}

func unique(values []string) []string {
	slices.Sort(values)
	return slices.Compact(values)
}
