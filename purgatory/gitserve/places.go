package gitserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync/limit"
)

// party is who causes a request, and for whom: what is scarce is shared by all of that.
type party struct {
	client  string // empty: nobody says which
	network string // that the client is in
	owner   string
	repo    string
}

// stranger is the client as memory is shared. Who has no name is bounded by the total only.
func (w party) stranger() limit.Stranger {
	if w.network == w.client { // it is no address
		return limit.Stranger{ID: w.client}
	}
	return limit.Stranger{ID: w.client, Group: w.network}
}

// identify returns the name under which a client is counted, and that of its network. Of
// an address of IPv6 only the first 64 bits count, whoever says it: everybody has as many
// of these as he likes.
func identify(name string) (client, network string) {
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return name, name
	}
	addr = addr.Unmap().WithZone("")
	if client = addr.String(); !addr.Is4() {
		client = netip.PrefixFrom(addr, 64).Masked().String()
	}
	return client, networkOf(client)
}

// networkOf is the network of a client, as it is counted: an address of IPv4 or a /64. Of
// a name that is neither, it is the client itself.
func networkOf(client string) string {
	if p, err := netip.ParsePrefix(client); err == nil && p.Addr().Is6() {
		return netip.PrefixFrom(p.Addr(), 48).Masked().String()
	}
	if addr, err := netip.ParseAddr(client); err == nil && addr.Is4() {
		return netip.PrefixFrom(addr, 24).Masked().String()
	}
	return client
}

// remote is the public address that a request comes from. Behind another address there
// are usually many clients, since it is that of a proxy: they have no name.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	if addr = addr.Unmap(); private(addr) {
		return ""
	}
	return addr.String()
}

// places are taken by requests for a while. A place that becomes free goes to whoever
// has the fewest of them, and had the fewest since he came: first of the clients, then
// of their networks, of the owners and of the repositories. Who asks more often only
// waits behind himself.
type places struct {
	most int
	// loose is how many are taken before anybody is held to his bound: where there is
	// room, many may come from one address.
	loose     int
	perClient int // bound of one client that has a name

	mu sync.Mutex
	// guarded by mu
	taken   int
	shares  map[share]*standing // of those who have a place or wait for one
	waiting []*turn             // in the order in which they came
	waited  time.Duration       // in all
	refused uint64              // of those who waited in vain
}

// share is one of the things that places are shared by, and its name.
type share struct {
	by   sharing
	name string
}

type sharing uint8

const (
	byClient sharing = iota
	byNetwork
	byOwner
	byRepo
	sharings
)

// standing is what somebody has of the places.
type standing struct {
	held, granted, waiting int
}

// turn is a wait for a place.
type turn struct {
	who     party
	granted chan struct{} // closed when it has one
}

func newPlaces(most, loose, perClient int) *places {
	return &places{most: most, loose: loose, perClient: perClient, shares: make(map[share]*standing)}
}

func (w party) shares() [sharings]share {
	return [sharings]share{{byClient, w.client}, {byNetwork, w.network}, {byOwner, w.owner}, {byRepo, w.repo}}
}

// enter takes a place, for which it waits until ctx ends, and most at the most. While it
// waits, press is called now and then, if it is not nil: it may have somebody leave.
func (p *places) enter(ctx context.Context, who party, most time.Duration, press func()) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	leave, t := p.ask(who)
	if t == nil {
		return leave, nil
	}
	if press == nil {
		press = func() {}
	}
	defer func(began time.Time) { p.note(time.Since(began), err != nil) }(time.Now())
	tick := time.NewTicker(pressPeriod)
	defer tick.Stop()
	for {
		if p.first(t) {
			press()
		}
		select {
		case <-t.granted:
			return p.leaving(who), nil
		case <-tick.C:
		case <-ctx.Done():
			if p.withdraw(t) {
				return nil, context.Cause(ctx)
			}
			return p.leaving(who), nil // at the last moment
		}
	}
}

// pressPeriod is how often who waits looks for somebody that may be asked to leave.
const pressPeriod = 50 * time.Millisecond

// try takes a place if one is free.
func (p *places) try(who party) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.open(who) {
		return nil, false
	}
	p.grant(who)
	return p.leaving(who), true
}

// ask takes a place, or waits in turn for one.
func (p *places) ask(who party) (leave func(), wait *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open(who) {
		p.grant(who)
		return p.leaving(who), nil
	}
	t := &turn{who: who, granted: make(chan struct{})}
	p.waiting = append(p.waiting, t)
	for _, s := range who.shares() {
		p.standing(s).waiting++
	}
	return nil, t
}

// obstacle is what keeps somebody from a place: that there is none, or that others have
// too many of them for the same network, owner or repository; or his own client has, and
// then nobody's leaving helps.
type obstacle struct {
	none, self, full bool
	shares           []share
}

// of reports whether somebody who has a place is in the way.
func (o obstacle) of(who party) bool {
	if o.full {
		return true
	}
	for _, s := range who.shares() {
		if slices.Contains(o.shares, s) {
			return true
		}
	}
	return false
}

// obstacle says what keeps somebody from a place. Nobody has all of them, so that others
// need not wait for one, but for somebody whom nobody says to be one. It is called with mu
// held, as are all below.
func (p *places) obstacle(who party) (o obstacle) {
	reserve := 0
	if p.most > 1 {
		reserve = max(1, p.most/4)
	}
	for _, s := range who.shares() {
		one := p.shares[s]
		switch {
		case one == nil || s.name == "":
		case s.by == byClient && p.taken >= p.loose && one.held >= p.perClient, s.by == byClient && one.held >= p.most-reserve:
			o.self = true
		case one.held >= p.most-reserve:
			o.shares = append(o.shares, s)
		}
	}
	o.full = p.taken >= p.most && !o.self
	o.none = p.taken < p.most && !o.self && len(o.shares) == 0
	return o
}

func (p *places) open(who party) bool { return p.obstacle(who).none }

func (p *places) standing(s share) *standing {
	one := p.shares[s]
	if one == nil {
		one = &standing{}
		p.shares[s] = one
	}
	return one
}

func (p *places) grant(who party) {
	p.taken++
	for _, s := range who.shares() {
		one := p.standing(s)
		one.held++
		one.granted++
	}
}

// forget lets go of what is not needed to share any more.
func (p *places) forget(who party) {
	for _, s := range who.shares() {
		if one := p.shares[s]; one.held == 0 && one.waiting == 0 {
			delete(p.shares, s)
		}
	}
}

// leaving gives a place back, once.
func (p *places) leaving(who party) (leave func()) {
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken--
		for _, s := range who.shares() {
			p.shares[s].held--
		}
		for t := p.next(); t != nil; t = p.next() {
			p.remove(t)
			p.grant(t.who)
			close(t.granted)
		}
		p.forget(who)
	})
}

// next is whose turn it is, nil if nobody may have a place.
func (p *places) next() (first *turn) {
	for _, t := range p.waiting {
		if p.open(t.who) && (first == nil || p.before(t.who, first.who)) {
			first = t
		}
	}
	return first
}

// before reports whether one who came later is to be served first.
func (p *places) before(later, earlier party) bool {
	a, b := later.shares(), earlier.shares()
	for _, of := range []func(*standing) int{
		func(s *standing) int { return s.held }, func(s *standing) int { return s.granted },
	} {
		for i := range sharings {
			if a[i].name == "" || b[i].name == "" {
				continue
			}
			if x, y := of(p.shares[a[i]]), of(p.shares[b[i]]); x != y {
				return x < y
			}
		}
	}
	return false
}

func (p *places) remove(t *turn) {
	for i, other := range p.waiting {
		if other == t {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			break
		}
	}
	for _, s := range t.who.shares() {
		p.shares[s].waiting--
	}
}

// withdraw ends a wait; false: it has its place already.
func (p *places) withdraw(t *turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-t.granted:
		return false
	default:
	}
	p.remove(t)
	p.forget(t.who)
	return true
}

// first reports whether the next place is for somebody who waits.
func (p *places) first(t *turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var first *turn
	for _, other := range p.waiting {
		if !p.obstacle(other.who).self && (first == nil || p.before(other.who, first.who)) {
			first = other
		}
	}
	return first == t
}

// inTheWay says who keeps somebody from a place that he waits for, and how many wait for
// those.
func (p *places) inTheWay(who party) (o obstacle, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o = p.obstacle(who)
	for _, t := range p.waiting {
		if !p.obstacle(t.who).self && o.of(t.who) {
			waiting++
		}
	}
	return o, waiting
}

// fewer reports whether one has fewer places than another.
func (p *places) fewer(one, other party) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, b := one.shares(), other.shares()
	for i := range sharings {
		x, y := p.shares[a[i]], p.shares[b[i]]
		if a[i].name == "" || b[i].name == "" {
			continue
		}
		if x == nil || y == nil {
			return y != nil && y.held > 0
		}
		if x.held != y.held {
			return x.held < y.held
		}
	}
	return false
}

// count is how many places are taken, and how many wait for one.
func (p *places) count() (taken, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken, len(p.waiting)
}

// placesStats are figures about places.
type placesStats struct {
	taken, waiting int
	waited         time.Duration
	refused        uint64
}

func (p *places) stats() placesStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return placesStats{p.taken, len(p.waiting), p.waited, p.refused}
}

// note counts a wait.
func (p *places) note(took time.Duration, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waited += took; failed {
		p.refused++
	}
}

// held is how many places somebody has.
func (p *places) held(s share) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if one := p.shares[s]; one != nil {
		return one.held
	}
	return 0
}

// lane has the bounds for the requests of one kind. A request first is a visit, of which
// there may be many: it costs a connection and files. Only what has been read, and of a
// push what has been judged, asks for a place, in which git runs.
type lane struct {
	visits *visits
	places *places
}

func newLane(cfg Config, most int, bytes int64) lane {
	return lane{newVisits(cfg, bytes), newPlaces(most, 0, (most+3)/4)}
}

// enter takes a place for a visit, for which it waits for most at the most.
func (l lane) enter(ctx context.Context, v *visit, most time.Duration) (leave func(), err error) {
	press := func() {}
	if l.visits == v.of {
		press = func() { l.visits.press(l.places, v.who) }
	}
	return l.places.enter(ctx, v.who, most, press)
}

// busy sends a client away that has waited for too long.
func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "30")
	http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
}

// errBusy is wrapped when there is no room for a request, or no more.
var errBusy = errors.New("too many requests at once")
