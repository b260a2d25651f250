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
	// Own are the clone URLs of members, Strangers the others of pull requests, by author.
	// Several authors may name the same URL.
	Own       []graspsync.CloneURL
	Strangers [][]graspsync.CloneURL
	Left      int                 // number of URLs over the limits, which get their turn later
	Entries   []graspsync.EventID // events that wait for the objects
	Members   map[graspsync.PubKey]struct{}
}

// URLs returns all clone URLs.
func (n Need) URLs() []graspsync.CloneURL { return slices.Concat(n.Own, slices.Concat(n.Strangers...)) }

// Clones are the limits of clone URLs.
type Clones struct {
	Most   int                             // number of used URLs per announcement or pull request
	IsOurs func(u graspsync.CloneURL) bool // URLs of this service, which are not used
	Now    time.Time                       // determines the rotation
}

// mostOwn and mostStrangers times Clones.Most are the maximum numbers of clone URLs of all
// members and of all pull requests. A URL counts once per author.
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
	slices.SortFunc(n.IDs, CompareIDs)
	n.IDs = slices.Compact(n.IDs)
	n.Own, n.Strangers, n.Left = g.urls(r, clones)
	return n
}

// urls returns the clone URLs of a repository, and the number of those over the limits. Over the
// limit, members take turns with one URL each: the owner, authors of held states, then the
// others. The order of the rest, and of authors of pull requests, rotates each hour.
func (g *Group) urls(r *Repository, clones Clones) (own []graspsync.CloneURL, strangers [][]graspsync.CloneURL, dropped int) {
	type urlOf struct {
		author graspsync.PubKey // zero: a member
		url    graspsync.CloneURL
	}
	seen := make(map[urlOf]struct{})
	usable := func(author graspsync.PubKey, us []graspsync.CloneURL) (out []graspsync.CloneURL) {
		room := clones.Most
		for _, u := range us {
			if !u.HostPort().Resolvable() {
				continue
			}
			if room--; room < 0 {
				break
			}
			_, again := seen[urlOf{author, u}]
			if _, owned := seen[urlOf{url: u}]; !again && !owned && !clones.IsOurs(u) {
				seen[urlOf{author, u}] = struct{}{}
				out = append(out, u)
			}
		}
		return out
	}
	of := make(map[graspsync.PubKey][]graspsync.CloneURL)
	add := func(a *nip34.Announcement) {
		us := usable(graspsync.PubKey{}, a.Clones)
		own = append(own, us...)
		of[a.Ref.Owner] = append(of[a.Ref.Owner], us...)
	}
	for _, a := range g.All {
		if r.IsMember(a.Ref.Owner) {
			add(a)
		}
	}
	members := slices.SortedFunc(maps.Keys(r.Members), graspsync.PubKey.Compare)
	for _, member := range members {
		if a := g.Family.Announcement(member); a != nil {
			add(a)
		}
	}
	if most := mostOwn * clones.Most; len(own) > most {
		dropped = len(own) - most
		own = nil
		inTurn(of, g.inOrder(r, members, most, clones.Now), most, func(_ graspsync.PubKey, u graspsync.CloneURL) {
			own = append(own, u)
		})
	}
	by, all := make(map[graspsync.PubKey][]graspsync.CloneURL), 0
	for _, h := range g.Pulls {
		if slices.Contains(h.Repos, r.Ref) {
			us := usable(h.Pull.Author, h.Pull.Clones)
			by[h.Pull.Author] = append(by[h.Pull.Author], us...)
			all += len(us)
		}
	}
	authors := slices.SortedFunc(maps.Keys(by), graspsync.PubKey.Compare)
	if most := mostStrangers * clones.Most; all > most {
		dropped += all - most
		some := make(map[graspsync.PubKey][]graspsync.CloneURL)
		inTurn(by, turned(authors, most/2, clones.Now), most, func(author graspsync.PubKey, u graspsync.CloneURL) {
			some[author] = append(some[author], u)
		})
		by = some
	}
	for _, author := range authors {
		strangers = append(strangers, by[author])
	}
	return own, strangers, dropped
}

func turned(all []graspsync.PubKey, by int, now time.Time) []graspsync.PubKey {
	first := int(now.Unix()/int64(rotates/time.Second)%int64(len(all))) * max(1, by) % len(all)
	return slices.Concat(all[first:], all[:first])
}

func (g *Group) inOrder(r *Repository, members []graspsync.PubKey, most int, now time.Time) []graspsync.PubKey {
	out := turned(members, most/2, now)
	writes := make(map[graspsync.PubKey]struct{})
	for _, h := range g.States {
		writes[h.Author] = struct{}{}
	}
	rank := func(who graspsync.PubKey) int {
		_, is := writes[who]
		switch {
		case who == r.Ref.Owner:
			return 0
		case is:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(out, func(a, b graspsync.PubKey) int { return rank(a) - rank(b) })
	return out
}

// inTurn calls add for at most most URLs, one of each key in turn.
func inTurn(of map[graspsync.PubKey][]graspsync.CloneURL, order []graspsync.PubKey, most int, add func(graspsync.PubKey, graspsync.CloneURL)) {
	for round, more := 0, true; more; round++ {
		more = false
		for _, who := range order {
			if us := of[who]; round < len(us) && most > 0 {
				add(who, us[round])
				more = true
				most--
			}
		}
	}
}
