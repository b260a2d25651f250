package refplan

import (
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Need lists missing objects, and the URLs that may have them.
type Need struct {
	IDs      []nip34.ObjectID
	StateIDs []nip34.ObjectID // those of IDs that states name; sorted
	// MemberURLs are the clone URLs of members, PullURLs the others in the pull requests of each
	// author. Several authors may name one URL.
	MemberURLs  []graspsync.CloneURL
	PullURLs    [][]graspsync.CloneURL
	OmittedURLs int                           // number of URLs over the limits
	EventIDs    []graspsync.EventID           // events that wait for the objects
	Authors     map[graspsync.PubKey]struct{} // members, and authors of the events
}

// Clones are the limits of clone URLs.
type Clones struct {
	Most   int                             // number of used URLs per announcement or pull request
	IsOurs func(u graspsync.CloneURL) bool // URLs of this service, which are not used
	Now    time.Time                       // determines the rotation
}

// mostOwn and mostStrangers times Clones.Most are the maximum numbers of clone URLs.
const mostOwn = 4

const mostStrangers = 16

const rotationPeriod = time.Hour

// Need returns the objects that r lacks for held events and for the newest stored state.
func (g *Group) Need(r *Repository, clones Clones) (n Need) {
	n.Authors = make(map[graspsync.PubKey]struct{})
	maps.Copy(n.Authors, r.Members)
	for _, h := range g.HeldStates {
		if ids := r.MissingOfState(h.State); r.IsMember(h.Author) && len(ids) > 0 {
			n.IDs = append(n.IDs, ids...)
			n.EventIDs = append(n.EventIDs, h.ID)
		}
	}
	if s := g.NewestStored(r); s != nil {
		ids := r.MissingOfState(s)
		n.IDs = append(n.IDs, ids...)
		if e, held := g.HeldAnnouncements[r.Ref]; held && len(ids) > 0 {
			n.EventIDs = append(n.EventIDs, e.ID)
		}
	}
	n.StateIDs = slices.SortedFunc(slices.Values(n.IDs), CompareIDs)
	for _, h := range g.HeldPulls {
		if slices.Contains(h.Repos, r.Ref) && h.Pull.Tip.Format() == r.Refs.Format && r.IsKnownMissing(h.Pull.Tip) {
			n.IDs = append(n.IDs, h.Pull.Tip)
			n.EventIDs = append(n.EventIDs, h.ID)
			n.Authors[h.Author] = struct{}{}
		}
	}
	n.IDs = distinct(n.IDs)
	n.MemberURLs, n.PullURLs, n.OmittedURLs = g.urls(r, clones)
	return n
}

// urls returns the clone URLs of a repository, and the number of those over the limits. The owner and
// authors of held states come first. The order of the other members rotates each hour. Authors of pull
// requests take turns with one URL each, those of the newest first.
func (g *Group) urls(r *Repository, clones Clones) (own []graspsync.CloneURL, strangers [][]graspsync.CloneURL, omitted int) {
	used := make(map[graspsync.CloneURL]bool) // false: over the limit
	count := 0
	take := func(u graspsync.CloneURL, most int) bool {
		if _, again := used[u]; again || !u.HostPort().Resolvable() || clones.IsOurs(u) {
			return false
		}
		if used[u] = count < most*clones.Most; used[u] {
			count++
		} else {
			omitted++
		}
		return used[u]
	}
	for _, member := range g.inOrder(r, clones.Now) {
		if a := g.Family.Announcement(member); a != nil {
			for _, u := range a.Clones[:min(len(a.Clones), clones.Most)] {
				if take(u, mostOwn) {
					own = append(own, u)
				}
			}
		}
	}
	of, authors := g.pullURLs(r, clones)
	members := maps.Clone(used)
	count = 0
	for round, waiting := 0, authors; len(waiting) > 0; round++ {
		waiting = slices.DeleteFunc(slices.Clone(waiting), func(who graspsync.PubKey) bool { return round >= len(of[who]) })
		for _, who := range waiting {
			take(of[who][round], mostStrangers)
		}
	}
	for _, who := range authors {
		strangers = append(strangers, slices.DeleteFunc(of[who], func(u graspsync.CloneURL) bool {
			_, theirs := members[u]
			return theirs || !used[u]
		}))
	}
	return own, strangers, omitted
}

// pullURLs returns the clone URLs in the pull requests of each author, and the authors, the newest
// first.
func (g *Group) pullURLs(r *Repository, clones Clones) (of map[graspsync.PubKey][]graspsync.CloneURL, authors []graspsync.PubKey) {
	of = make(map[graspsync.PubKey][]graspsync.CloneURL)
	newest := func(a, b Entry) int { return b.Seen.Compare(a.Seen) }
	for _, h := range slices.SortedStableFunc(slices.Values(g.HeldPulls), newest) {
		if us := h.Pull.Clones; slices.Contains(h.Repos, r.Ref) && len(us) > 0 {
			if of[h.Author] == nil {
				authors = append(authors, h.Author)
			}
			of[h.Author] = append(of[h.Author], us[:min(len(us), clones.Most)]...)
		}
	}
	return of, authors
}

func (g *Group) inOrder(r *Repository, now time.Time) []graspsync.PubKey {
	members := slices.SortedFunc(maps.Keys(r.Members), graspsync.PubKey.Compare)
	first := int(now.Unix()/int64(rotationPeriod/time.Second)) % max(1, len(members))
	members = slices.Concat(members[first:], members[:first])
	rank := func(who graspsync.PubKey) int {
		switch {
		case who == r.Ref.Owner:
			return 0
		case slices.ContainsFunc(g.HeldStates, func(h Entry) bool { return h.Author == who }):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(members, func(a, b graspsync.PubKey) int { return rank(a) - rank(b) })
	return members
}
