package nip34

import (
	"github.com/graspsync/graspsync"
)

// Target is a relay of a repository, with the author whose announcement lists it.
type Target struct {
	Relay    graspsync.RelayURL
	ListedBy graspsync.PubKey
}

// TargetBounds limits the relays of a repository.
type TargetBounds struct {
	MaxAuthors  int // maximum number of authors whom the owner lists recursively
	PerAuthor   int // maximum number of relays per announcement; the first are used
	MaxByOthers int // maximum number of relays that only other authors list
	IsUsable    func(graspsync.RelayURL) bool
}

// Targets returns a function, not for concurrent use, that returns the relays of an owner's
// repository by priority. The owner's relays come first, then relays of authors whom the owner lists
// recursively, one per author and turn. Members (and keys on the way to the root) and invited keys
// alternate, the nearest first. left is the number of relays beyond the limit.
func (f *AnnouncementSet) Targets(rule TargetBounds) func(owner graspsync.PubKey) (targets []Target, left int) {
	r := f.newListSearch(rule.MaxAuthors)
	return func(owner graspsync.PubKey) (targets []Target, left int) {
		seen := make(map[graspsync.RelayURL]struct{})
		isSeen := func(u graspsync.RelayURL) bool { _, is := seen[u]; return is }
		for _, u := range rule.relays(f.Announcement(owner)) {
			seen[u] = struct{}{}
			targets = append(targets, Target{u, owner})
		}
		own := len(targets)
		lists, leading, _ := r.keys(owner)
		queues := [2][]authorRelays{rule.withAnnouncement(lists[:leading], true), rule.withAnnouncement(lists[leading:], false)}
		for i := 0; len(queues[0])+len(queues[1]) > 0; {
			queue := &queues[i%len(queues)]
			if len(*queue) == 0 {
				i++
				continue
			}
			t := (*queue)[0]
			*queue = (*queue)[1:]
			t.rest = t.rest[prefixLen(t.rest, isSeen):]
			if len(t.rest) == 0 {
				continue
			}
			seen[t.rest[0]] = struct{}{}
			if len(targets)-own < rule.MaxByOthers {
				targets = append(targets, Target{t.rest[0], t.author})
			} else {
				left++
			}
			*queue = append(*queue, authorRelays{t.author, t.rest[1:]})
			i++
		}
		return targets, left
	}
}

type authorRelays struct {
	author graspsync.PubKey
	rest   []graspsync.RelayURL
}

// withAnnouncement returns the relays of the authors with announcements. Without ended, authors who
// ended their own role are left out.
func (b TargetBounds) withAnnouncement(nodes []*node, ended bool) (authors []authorRelays) {
	for _, r := range nodes {
		if r.announcement != nil && (ended || r.announcement.ClaimsRole()) {
			authors = append(authors, authorRelays{r.key, b.relays(r.announcement)})
		}
	}
	return authors
}

func (b TargetBounds) relays(a *Announcement) (relays []graspsync.RelayURL) {
	if a == nil {
		return nil
	}
	each := 0
	for _, u := range a.Relays {
		if !u.HostPort().Resolvable() {
			continue
		}
		if each++; each > b.PerAuthor {
			break
		}
		if b.IsUsable(u) {
			relays = append(relays, u)
		}
	}
	return relays
}
