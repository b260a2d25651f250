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
	IDs    []nip34.ObjectID
	States []nip34.ObjectID // those of IDs that states name; sorted
	// Own are the clone URLs of members, Strangers the others in pull requests.
	Own, Strangers []graspsync.CloneURL
	Left           int                           // number of URLs over the limits
	Entries        []graspsync.EventID           // events that wait for the objects
	Authors        map[graspsync.PubKey]struct{} // members, and authors of Entries
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

const rotates = time.Hour

// Need returns the objects that r lacks for held events and for the newest stored state.
func (g *Group) Need(r *Repository, clones Clones) (n Need) {
	n.Authors = make(map[graspsync.PubKey]struct{})
	maps.Copy(n.Authors, r.Members)
	for _, h := range g.States {
		if ids := r.Absent(h.State); r.IsMember(h.Author) && len(ids) > 0 {
			n.IDs = append(n.IDs, ids...)
			n.Entries = append(n.Entries, h.ID)
		}
	}
	if s := g.NewestStored(r); s != nil {
		ids := r.Absent(s)
		n.IDs = append(n.IDs, ids...)
		if e, waits := g.Waiting[r.Ref]; waits && len(ids) > 0 {
			n.Entries = append(n.Entries, e.ID)
		}
	}
	n.States = slices.SortedFunc(slices.Values(n.IDs), CompareIDs)
	for _, h := range g.Pulls {
		if slices.Contains(h.Repos, r.Ref) && h.Pull.Tip.Format() == r.Refs.Format && r.Misses(h.Pull.Tip) {
			n.IDs = append(n.IDs, h.Pull.Tip)
			n.Entries = append(n.Entries, h.ID)
			n.Authors[h.Author] = struct{}{}
		}
	}
	n.IDs = distinct(n.IDs)
	n.Own, n.Strangers, n.Left = g.urls(r, clones)
	return n
}

// urls returns the clone URLs of a repository, and the number of those over the limits. The owner and
// authors of held states come first. The order of the other members rotates each hour. Of pull
// requests, the newest come first.
func (g *Group) urls(r *Repository, clones Clones) (own, strangers []graspsync.CloneURL, left int) {
	used := make(map[graspsync.CloneURL]struct{})
	add := func(to, us []graspsync.CloneURL, most int) []graspsync.CloneURL {
		for _, u := range us[:min(len(us), clones.Most)] {
			if _, again := used[u]; again || !u.HostPort().Resolvable() || clones.IsOurs(u) {
				continue
			}
			used[u] = struct{}{}
			if len(to) < most*clones.Most {
				to = append(to, u)
			} else {
				left++
			}
		}
		return to
	}
	for _, member := range g.inOrder(r, clones.Now) {
		if a := g.Family.Announcement(member); a != nil {
			own = add(own, a.Clones, mostOwn)
		}
	}
	newest := func(a, b Entry) int { return b.Seen.Compare(a.Seen) }
	for _, h := range slices.SortedStableFunc(slices.Values(g.Pulls), newest) {
		if slices.Contains(h.Repos, r.Ref) {
			strangers = add(strangers, h.Pull.Clones, mostStrangers)
		}
	}
	return own, strangers, left
}

func (g *Group) inOrder(r *Repository, now time.Time) []graspsync.PubKey {
	members := slices.SortedFunc(maps.Keys(r.Members), graspsync.PubKey.Compare)
	first := int(now.Unix()/int64(rotates/time.Second)) % max(1, len(members))
	members = slices.Concat(members[first:], members[:first])
	rank := func(who graspsync.PubKey) int {
		switch {
		case who == r.Ref.Owner:
			return 0
		case slices.ContainsFunc(g.States, func(h Entry) bool { return h.Author == who }):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(members, func(a, b graspsync.PubKey) int { return rank(a) - rank(b) })
	return members
}
