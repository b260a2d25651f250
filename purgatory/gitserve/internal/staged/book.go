// Package staged is the book of what was pushed for events that are not here: who has
// pushed how much for which of them, whose quota that counts for, and when it goes. It
// has no clock and no disk: what it is told is all that it knows.
package staged

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Limits are how much may lie here, and for how long. All must be set.
type Limits struct {
	Hold time.Duration
	// Bytes in all, of what was pushed to one repository, and by one client.
	All, PerRepo, PerClient int64
	// Network says in which network a client is. Nil: each is in one of its own.
	Network func(client string) string
}

// Least is what each event of a push counts for at least, in bytes: a folder, its files
// and their note, and what is remembered of them. So the quotas bound their number too.
const Least = 64 << 10

// PerEvent is how many pushes for one event of a repository may lie here. Strangers may
// name an event that somebody else is about to publish: the pushes of some of them must
// not keep its author out, and each costs a look when the event comes. A network that has
// several of them gives way to another one.
const PerEvent = 8

// The reasons why something has no room.
var (
	ErrAll    = errors.New("too much was pushed to this server for events that are not here")
	ErrRepo   = errors.New("too much was pushed to this repository for events that are not here")
	ErrClient = errors.New("you have pushed too much for events that are not here")
	ErrEvent  = errors.New("too many have pushed for this event")
)

// pool is room that networks share. Where there is none left, whoever has less than
// another one takes it from that one, down to the same amount: who was here first, and has
// many addresses, keeps nobody out. Uploads can be
// taken; what is on its way can't.
type pool struct {
	sum   int64
	kept  int64 // of it, in uploads
	of    map[string]*share
	order []*share // the largest first, so that it need not be looked for
}

// share is what a network has of a pool.
type share struct {
	network string
	has     int64     // with what is on its way
	kept    int64     // of it, in uploads
	uploads []*Upload // the oldest first; with some that are not here any more
	here    int       // of them
}

func newPool() *pool { return &pool{of: make(map[string]*share)} }

// before orders shares: who has the most comes first.
func (s *share) before(o *share) int {
	return cmp.Or(cmp.Compare(o.has, s.has), strings.Compare(s.network, o.network))
}

// add gives a network more of a pool.
func (p *pool) add(network string, more int64) {
	s := p.of[network]
	if s == nil {
		s = &share{network: network}
		p.of[network] = s
	} else {
		i, _ := slices.BinarySearchFunc(p.order, s, (*share).before)
		p.order = slices.Delete(p.order, i, i+1)
	}
	p.sum += more
	if s.has += more; s.has == 0 {
		delete(p.of, network)
		return
	}
	i, _ := slices.BinarySearchFunc(p.order, s, (*share).before)
	p.order = slices.Insert(p.order, i, s)
}

// keep has an upload be part of what its network has.
func (p *pool) keep(network string, u *Upload) {
	if s := p.of[network]; s != nil { // else it takes up nothing
		p.kept += u.Bytes
		s.kept += u.Bytes
		s.uploads = append(s.uploads, u)
		s.here++
	}
}

// lose ends that.
func (p *pool) lose(network string, u *Upload, here func(*Upload) bool) {
	s := p.of[network]
	if s == nil {
		return
	}
	p.kept -= u.Bytes
	s.kept -= u.Bytes
	if s.here--; len(s.uploads) > 2*s.here+mostGone {
		s.uploads = slices.DeleteFunc(s.uploads, func(u *Upload) bool { return !here(u) })
	}
}

// mostGone is how many uploads more than there are at least are remembered that have gone:
// to take each out of the midst of the others would cost as much as there are.
const mostGone = 100

// room is how much more a network may have, where a number of bytes is shared.
func (p *pool) room(network string, limit int64) int64 {
	most := limit - p.sum + p.kept
	if s := p.of[network]; s != nil {
		most -= s.kept
	}
	// The most for which there is room: the more it takes, the less is there to be taken.
	n := sort.Search(int(max(most, 0)), func(i int) bool { return !p.fits(network, int64(i)+1, limit) })
	return int64(n)
}

// fits reports whether a network may have more, when each other one that has more than it
// then has has given up so much as it can.
func (p *pool) fits(network string, more, limit int64) bool {
	level, sum := more, p.sum+more
	if s := p.of[network]; s != nil {
		level += s.has
	}
	for _, s := range p.order {
		if sum <= limit || s.has <= level {
			break
		}
		if s.network != network {
			sum -= min(s.kept, s.has-level)
		}
	}
	return sum <= limit
}

// oldest is the oldest upload of the network that has the most, of those whose uploads can be
// taken; nil if there is none.
func (p *pool) oldest(but string, here func(*Upload) bool) *Upload {
	for _, s := range p.order {
		if s.here == 0 || s.network == but {
			continue
		}
		for !here(s.uploads[0]) {
			s.uploads = s.uploads[1:]
		}
		return s.uploads[0]
	}
	return nil
}

// Upload is what one push has brought.
type Upload struct {
	Name   string // of its folder
	Repo   graspsync.RepoRef
	Client string // who pushed; empty: that is not known
	Tips   map[graspsync.EventID]nip34.ObjectID
	Bytes  int64
	Since  time.Time
}

// Grant is the room that a push has which is under way.
type Grant struct {
	repo   graspsync.RepoRef
	client string
	ids    []graspsync.EventID
	bytes  int64
}

// Bytes is what a push is charged with.
func (g *Grant) Bytes() int64 { return g.bytes }

type key struct {
	repo graspsync.RepoRef
	id   graspsync.EventID
}

// Book has all uploads, and the grants of those that are under way.
type Book struct {
	limits  Limits
	uploads map[string]*Upload
	order   []string // names, the oldest first; with some that are not here any more
	events  map[key]map[string]struct{}
	coming  map[key][]*Grant
	all     *pool
	repos   map[graspsync.RepoRef]*pool
	clients map[string]int64
	gone    []string // displaced, and not told yet
}

// New returns an empty book.
func New(limits Limits) *Book {
	return &Book{
		limits: limits, uploads: make(map[string]*Upload), events: make(map[key]map[string]struct{}), coming: make(map[key][]*Grant),
		all: newPool(), repos: make(map[graspsync.RepoRef]*pool), clients: make(map[string]int64),
	}
}

// network is the name under which a client has a share.
func (b *Book) network(client string) string {
	if b.limits.Network == nil {
		return client
	}
	return b.limits.Network(client)
}

// Begin gives a push for some events room to begin with. The error is one of the reasons.
func (b *Book) Begin(repo graspsync.RepoRef, client string, ids []graspsync.EventID) (*Grant, error) {
	var crowded []key
	for _, id := range ids {
		switch k := (key{repo, id}); {
		case b.open(k, client):
		case b.crowd(k, client) == "":
			return nil, ErrEvent
		default:
			crowded = append(crowded, k)
		}
	}
	g := &Grant{repo: repo, client: client, ids: ids}
	if err := b.Charge(g, 0); err != nil {
		return nil, err
	}
	for _, k := range crowded {
		if name := b.crowd(k, client); name != "" { // else it has gone to make room
			b.gone = append(b.gone, b.strike(name, k)...)
		}
	}
	for _, id := range ids {
		k := key{repo, id}
		b.coming[k] = append(b.coming[k], g)
	}
	return g, nil
}

// crowd is the oldest upload for an event of whichever other network has the most for it,
// and more than one; empty if none has, or if the client pushes for it already.
func (b *Book) crowd(k key, client string) (name string) {
	for _, g := range b.coming[k] {
		if client != "" && g.client == client {
			return ""
		}
	}
	has := make(map[string]int)
	for name := range b.events[k] {
		has[b.network(b.uploads[name].Client)]++
	}
	most := 1
	for other := range b.events[k] {
		u, best := b.uploads[other], b.uploads[name]
		network := b.network(u.Client)
		if network == b.network(client) || has[network] < most || has[network] < 2 {
			continue
		}
		if has[network] > most || best == nil || u.Since.Before(best.Since) {
			name, most = other, has[network]
		}
	}
	return name
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
// events if that is more. What others must give up for that is told by Displaced. The error
// is one of the reasons; nothing changes then.
func (b *Book) Charge(g *Grant, bytes int64) error {
	bytes = max(bytes, Least*int64(len(g.ids)))
	more := bytes - g.bytes
	if more > 0 {
		network := b.network(g.client)
		switch {
		case g.client != "" && b.clients[g.client]+more > b.limits.PerClient:
			return ErrClient
		case !b.pool(g.repo).fits(network, more, b.limits.PerRepo):
			return ErrRepo
		case !b.all.fits(network, more, b.limits.All):
			return ErrAll
		}
		b.displace(b.pool(g.repo), network, more, b.limits.PerRepo)
		b.displace(b.all, network, more, b.limits.All)
	}
	b.count(g.repo, g.client, more)
	g.bytes = bytes
	return nil
}

// displace makes room in a pool where there is some to be had: the oldest uploads of
// whoever has the most go.
func (b *Book) displace(p *pool, network string, more, limit int64) {
	for p.sum+more > limit {
		u := p.oldest(network, b.here)
		if u == nil {
			return // not reached: it was asked for before
		}
		b.Remove(u.Name)
		b.gone = append(b.gone, u.Name)
	}
}

func (b *Book) here(u *Upload) bool { return b.uploads[u.Name] == u }

// Displaced returns the folders of what had to make room since it was asked last.
func (b *Book) Displaced() (names []string) {
	names, b.gone = b.gone, nil
	return names
}

// Left is how much more a push may bring, in bytes.
func (b *Book) Left(g *Grant) int64 {
	network := b.network(g.client)
	left := min(b.all.room(network, b.limits.All), b.pool(g.repo).room(network, b.limits.PerRepo))
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
	b.pooled(&u, func(p *pool, network string) { p.keep(network, &u) })
}

// Restore takes in an upload that an earlier process has kept, if it has room under the limits
// of now: others give way to it as if it were pushed. The error is one of the reasons. Those of
// one book are restored in the order of their times.
func (b *Book) Restore(u Upload) error {
	g := &Grant{repo: u.Repo, client: u.Client}
	if err := b.Charge(g, u.Bytes); err != nil {
		return err
	}
	b.End(g)
	b.Put(u)
	return nil
}

// Of returns the uploads for an event to a repository, the oldest first.
func (b *Book) Of(repo graspsync.RepoRef, id graspsync.EventID) []Upload {
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
func (b *Book) Strike(repo graspsync.RepoRef, id graspsync.EventID) (gone []string) {
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
	b.pooled(u, func(p *pool, network string) { p.lose(network, u, b.here) })
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
func (b *Book) To(is func(graspsync.RepoRef) bool) (names []string) {
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
func (b *Book) Bytes() int64 { return b.all.sum }

// pool is that of a repository; nothing is in it if it has none yet.
func (b *Book) pool(repo graspsync.RepoRef) *pool {
	if p := b.repos[repo]; p != nil {
		return p
	}
	return newPool()
}

func (b *Book) count(repo graspsync.RepoRef, client string, more int64) {
	p := b.repos[repo]
	if p == nil {
		p = newPool()
		b.repos[repo] = p
	}
	network := b.network(client)
	for _, p := range []*pool{b.all, p} {
		p.add(network, more)
	}
	if p.sum == 0 {
		delete(b.repos, repo)
	}
	if client != "" {
		add(b.clients, client, more)
	}
}

// pooled has something done in the pools in which an upload is.
func (b *Book) pooled(u *Upload, do func(p *pool, network string)) {
	if u.Bytes <= 0 { // there is nothing to be taken
		return
	}
	network := b.network(u.Client)
	for _, p := range []*pool{b.all, b.repos[u.Repo]} {
		if p != nil { // it is empty, and nobody has anything of it
			do(p, network)
		}
	}
}

func add[K comparable](sums map[K]int64, k K, more int64) {
	if sums[k] += more; sums[k] == 0 {
		delete(sums, k)
	}
}
