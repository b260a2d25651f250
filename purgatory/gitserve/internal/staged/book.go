// Package staged is the book of what was pushed for events that are not here: who has
// pushed how much for which of them, whose quota that counts for, and when it goes. It
// has no clock and no disk: what it is told is all that it knows.
package staged

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// Limits are how much may lie here, and for how long. All must be set.
type Limits struct {
	Hold time.Duration
	// Bytes in all, of what was pushed to one repository, and by one client.
	All, PerRepo, PerClient int64
}

// Least is what each event of a push counts for at least, in bytes: a folder, its files
// and their note, and what is remembered of them. So the quotas bound their number too.
const Least = 64 << 10

// PerEvent is how many pushes for one event of a repository may lie here. Strangers may
// name an event that somebody else is about to publish: the pushes of some of them must
// not keep its author out, and each costs a look when the event comes.
const PerEvent = 8

// The reasons why something has no room.
var (
	ErrAll    = errors.New("too much was pushed to this server for events that are not here")
	ErrRepo   = errors.New("too much was pushed to this repository for events that are not here")
	ErrClient = errors.New("you have pushed too much for events that are not here")
	ErrEvent  = errors.New("too many have pushed for this event")
)

// Upload is what one push has brought.
type Upload struct {
	Name   string // of its folder
	Repo   filters.RepoRef
	Client string // who pushed; empty: that is not known
	Tips   map[filters.EventID]nip34.ObjectID
	Bytes  int64
	Since  time.Time
}

// Grant is the room that a push has which is under way.
type Grant struct {
	repo   filters.RepoRef
	client string
	ids    []filters.EventID
	bytes  int64
}

// Bytes is what a push is charged with.
func (g *Grant) Bytes() int64 { return g.bytes }

type key struct {
	repo filters.RepoRef
	id   filters.EventID
}

// Book has all uploads, and the grants of those that are under way.
type Book struct {
	limits  Limits
	uploads map[string]*Upload
	order   []string // names, the oldest first; with some that are not here any more
	events  map[key]map[string]struct{}
	coming  map[key][]*Grant
	all     int64
	repos   map[filters.RepoRef]int64
	clients map[string]int64
}

// New returns an empty book.
func New(limits Limits) *Book {
	return &Book{
		limits: limits, uploads: make(map[string]*Upload), events: make(map[key]map[string]struct{}), coming: make(map[key][]*Grant),
		repos: make(map[filters.RepoRef]int64), clients: make(map[string]int64),
	}
}

// Limit changes the limits, of what is here already as well.
func (b *Book) Limit(limits Limits) { b.limits = limits }

// Begin gives a push for some events room to begin with. The error is one of the reasons.
func (b *Book) Begin(repo filters.RepoRef, client string, ids []filters.EventID) (*Grant, error) {
	for _, id := range ids {
		if !b.open(key{repo, id}, client) {
			return nil, ErrEvent
		}
	}
	g := &Grant{repo: repo, client: client, ids: ids}
	if err := b.Charge(g, 0); err != nil {
		return nil, err
	}
	for _, id := range ids {
		k := key{repo, id}
		b.coming[k] = append(b.coming[k], g)
	}
	return g, nil
}

// open reports whether one more push for an event may come. A client that is known has
// one at a time, which replaces what it has pushed before.
func (b *Book) open(k key, client string) bool {
	n := len(b.coming[k])
	for _, g := range b.coming[k] {
		if client != "" && g.client == client {
			return false
		}
	}
	for name := range b.events[k] {
		if client == "" || b.uploads[name].Client != client {
			n++
		}
	}
	return n < PerEvent
}

// Charge makes what a push takes up a number of bytes, or of Least for each of its
// events if that is more. The error is one of the reasons; nothing changes then.
func (b *Book) Charge(g *Grant, bytes int64) error {
	bytes = max(bytes, Least*int64(len(g.ids)))
	more := bytes - g.bytes
	if more > 0 {
		switch {
		case g.client != "" && b.clients[g.client]+more > b.limits.PerClient:
			return ErrClient
		case b.repos[g.repo]+more > b.limits.PerRepo:
			return ErrRepo
		case b.all+more > b.limits.All:
			return ErrAll
		}
	}
	b.count(g.repo, g.client, more)
	g.bytes = bytes
	return nil
}

// Left is how much more a push may bring, in bytes.
func (b *Book) Left(g *Grant) int64 {
	left := min(b.limits.All-b.all, b.limits.PerRepo-b.repos[g.repo])
	if g.client != "" {
		left = min(left, b.limits.PerClient-b.clients[g.client])
	}
	return max(left, 0)
}

// End gives back what a push was granted. It may be called again.
func (b *Book) End(g *Grant) {
	b.count(g.repo, g.client, -g.bytes)
	g.bytes = 0
	for _, id := range g.ids {
		k := key{g.repo, id}
		b.coming[k] = slices.DeleteFunc(b.coming[k], func(o *Grant) bool { return o == g })
		if len(b.coming[k]) == 0 {
			delete(b.coming, k)
		}
	}
	g.ids = nil
}

// Keep ends a grant and has what came in its place. It returns the folders of what the
// same client has pushed for these events before, which nobody looks for any more.
func (b *Book) Keep(g *Grant, u Upload) (gone []string) {
	u.Repo, u.Client, u.Bytes = g.repo, g.client, g.bytes
	b.End(g)
	if u.Client != "" {
		for id := range u.Tips {
			k := key{u.Repo, id}
			for name := range b.events[k] {
				if b.uploads[name].Client == u.Client {
					gone = append(gone, b.strike(name, k)...)
				}
			}
		}
	}
	b.Put(u)
	return gone
}

// Put takes in an upload. No quota is asked: it may have been read from a disk. Those of
// one book are put in the order of their times.
func (b *Book) Put(u Upload) {
	u.Tips = maps.Clone(u.Tips)
	b.uploads[u.Name] = &u
	b.order = append(b.order, u.Name)
	for id := range u.Tips {
		k := key{u.Repo, id}
		if b.events[k] == nil {
			b.events[k] = make(map[string]struct{})
		}
		b.events[k][u.Name] = struct{}{}
	}
	b.count(u.Repo, u.Client, u.Bytes)
}

// Of returns the uploads for an event to a repository, the oldest first.
func (b *Book) Of(repo filters.RepoRef, id filters.EventID) []Upload {
	var out []Upload
	for name := range b.events[key{repo, id}] {
		u := *b.uploads[name]
		u.Tips = maps.Clone(u.Tips)
		out = append(out, u)
	}
	slices.SortFunc(out, func(x, y Upload) int { return x.Since.Compare(y.Since) })
	return out
}

// Strike ends what was pushed for an event to a repository, and returns the folders that
// nothing else needs.
func (b *Book) Strike(repo filters.RepoRef, id filters.EventID) (gone []string) {
	k := key{repo, id}
	for name := range b.events[k] {
		gone = append(gone, b.strike(name, k)...)
	}
	return gone
}

// strike is Strike for one upload.
func (b *Book) strike(name string, k key) (gone []string) {
	u := b.uploads[name]
	delete(u.Tips, k.id)
	b.unlist(k, name)
	if len(u.Tips) > 0 {
		return nil
	}
	b.Remove(name)
	return []string{name}
}

// Remove forgets an upload.
func (b *Book) Remove(name string) {
	u := b.uploads[name]
	if u == nil {
		return
	}
	delete(b.uploads, name)
	for id := range u.Tips {
		b.unlist(key{u.Repo, id}, name)
	}
	b.count(u.Repo, u.Client, -u.Bytes)
	if len(b.order) > 2*len(b.uploads)+100 {
		b.order = slices.DeleteFunc(b.order, func(n string) bool { return b.uploads[n] == nil })
	}
}

func (b *Book) unlist(k key, name string) {
	delete(b.events[k], name)
	if len(b.events[k]) == 0 {
		delete(b.events, k)
	}
}

// To returns the folders of what was pushed to some repositories.
func (b *Book) To(is func(filters.RepoRef) bool) (names []string) {
	for name, u := range b.uploads {
		if is(u.Repo) {
			names = append(names, name)
		}
	}
	return names
}

// Next is when the oldest upload goes; false if there is none.
func (b *Book) Next() (time.Time, bool) {
	for len(b.order) > 0 {
		if u := b.uploads[b.order[0]]; u != nil {
			return u.Since.Add(b.limits.Hold), true
		}
		b.order = b.order[1:]
	}
	return time.Time{}, false
}

// Due ends what has been here for long enough, and returns its folders.
func (b *Book) Due(now time.Time) (names []string) {
	for at, ok := b.Next(); ok && !now.Before(at); at, ok = b.Next() {
		names = append(names, b.order[0])
		b.Remove(b.order[0])
	}
	return names
}

// Len is how many uploads are here, Bytes how much they take up, with those that are
// under way.
func (b *Book) Len() int { return len(b.uploads) }

// Bytes is how much uploads take up, with those that are under way.
func (b *Book) Bytes() int64 { return b.all }

func (b *Book) count(repo filters.RepoRef, client string, more int64) {
	b.all += more
	add(b.repos, repo, more)
	if client != "" {
		add(b.clients, client, more)
	}
}

func add[K comparable](sums map[K]int64, k K, more int64) {
	if sums[k] += more; sums[k] == 0 {
		delete(sums, k)
	}
}
