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
	// Own are the clone URLs of members, Strangers the others in the pull requests of each author.
	// Several authors may name one URL.
	Own       []graspsync.CloneURL
	Strangers [][]graspsync.CloneURL
	Left      int                 // number of URLs over the limits, which get their turn later
	Entries   []graspsync.EventID // events that wait for the objects
	Members   map[graspsync.PubKey]struct{}
}

// URLs returns the distinct clone URLs.
func (n Need) URLs() (all []graspsync.CloneURL) {
	for _, u := range slices.Concat(n.Own, slices.Concat(n.Strangers...)) {
		if !slices.Contains(all, u) {
			all = append(all, u)
		}
	}
	return all
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
	n.Members = r.Members
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
		}
	}
	n.IDs = distinct(n.IDs)
	n.Own, n.Strangers, n.Left = g.urls(r, clones)
	return n
}

// urls returns the clone URLs of a repository, and the number of those over the limits. Over the
// limit, members take turns with one URL each, and so do authors of pull requests. The owner and
// authors of held states come first. The order of the others rotates each hour.
func (g *Group) urls(r *Repository, clones Clones) (own []graspsync.CloneURL, strangers [][]graspsync.CloneURL, dropped int) {
	usable := func(us []graspsync.CloneURL) []graspsync.CloneURL {
		us = slices.DeleteFunc(slices.Clone(us), func(u graspsync.CloneURL) bool { return !u.HostPort().Resolvable() })
		return slices.DeleteFunc(us[:min(len(us), clones.Most)], clones.IsOurs)
	}
	used := make(map[graspsync.CloneURL]bool)
	of := make(map[graspsync.PubKey][]graspsync.CloneURL)
	for _, a := range g.All {
		if r.IsMember(a.Ref.Owner) {
			of[a.Ref.Owner] = append(of[a.Ref.Owner], usable(a.Clones)...)
		}
	}
	members := slices.SortedFunc(maps.Keys(r.Members), graspsync.PubKey.Compare)
	for _, member := range members {
		if a := g.Family.Announcement(member); a != nil {
			of[member] = append(of[member], usable(a.Clones)...)
		}
	}
	most := mostOwn * clones.Most
	own, left := inTurn(of, g.inOrder(r, members, most, clones.Now), most, used)
	by := make(map[graspsync.PubKey][]graspsync.CloneURL)
	for _, h := range g.Pulls {
		if slices.Contains(h.Repos, r.Ref) {
			us := slices.DeleteFunc(usable(h.Pull.Clones), func(u graspsync.CloneURL) bool { _, is := used[u]; return is })
			by[h.Pull.Author] = append(by[h.Pull.Author], us...)
		}
	}
	authors := slices.SortedFunc(maps.Keys(by), graspsync.PubKey.Compare)
	most = mostStrangers * clones.Most
	_, more := inTurn(by, turned(authors, most, clones.Now), most, used)
	for _, author := range authors {
		strangers = append(strangers, slices.DeleteFunc(by[author], func(u graspsync.CloneURL) bool { return !used[u] }))
	}
	return own, strangers, left + more
}

// turned rotates keys by half of the limit each hour.
func turned(all []graspsync.PubKey, most int, now time.Time) []graspsync.PubKey {
	if len(all) == 0 {
		return nil
	}
	first := int(now.Unix()/int64(rotates/time.Second)%int64(len(all))) * max(1, most/2) % len(all)
	return slices.Concat(all[first:], all[:first])
}

func (g *Group) inOrder(r *Repository, members []graspsync.PubKey, most int, now time.Time) []graspsync.PubKey {
	out := turned(members, most, now)
	rank := func(who graspsync.PubKey) int {
		switch {
		case who == r.Ref.Owner:
			return 0
		case slices.ContainsFunc(g.States, func(h Entry) bool { return h.Author == who }):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(out, func(a, b graspsync.PubKey) int { return rank(a) - rank(b) })
	return out
}

// inTurn returns at most most URLs that are not in used, one of each key in turn, and the number of
// the others. It adds all URLs to used, those that it returns with true.
func inTurn(of map[graspsync.PubKey][]graspsync.CloneURL, order []graspsync.PubKey, most int, used map[graspsync.CloneURL]bool) (out []graspsync.CloneURL, left int) {
	for round, more := 0, true; more; round++ {
		more = false
		for _, who := range order {
			us := of[who]
			if round >= len(us) {
				continue
			}
			more = true
			if _, again := used[us[round]]; again {
				continue
			}
			if used[us[round]] = len(out) < most; used[us[round]] {
				out = append(out, us[round])
			} else {
				left++
			}
		}
	}
	return out, left
}
