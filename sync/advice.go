package sync

import (
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/nearest"
	"github.com/graspsync/graspsync/nip34"
)

const (
	// adviceAfter is after what time it counts that nothing has happened.
	adviceAfter = time.Minute
	// adviceMost is how many announcements that do not list us are looked at for whom they list,
	// and how many servers, relays and authors are remembered for that.
	adviceMost, adviceKeys = 5_000, 1_000
	// clockRelays and clockAuthors are from how many relays, and by how many authors, events must
	// be dated ahead before we doubt our clock: anybody can date one.
	clockRelays, clockAuthors = 2, 3
	// clockEvents is how many live events must all be as late as clockLate before we do.
	clockEvents = 10
	// nearAuthors is how many list a name that is like ours before it is taken for what is meant,
	// where none of them has submitted that here: one may list what they like.
	nearAuthors = 2
	clockLate   = 10 * time.Minute
	// clockRight is how late a live event is at most that shows our clock to be right.
	clockRight = 2 * time.Minute
)

// advice is what an operator is told, once each, whose server seems to be set up wrong: no single
// event says so, and nothing fails. It may be used by any goroutine.
type advice struct {
	us  nip34.Identity
	log *slog.Logger

	ours  atomic.Bool // a repository is ours: the domain is right
	clock atomic.Bool // so is our clock, or it was said that it is not

	mu sync.Mutex
	// guarded by mu
	began    time.Time
	said     map[string]bool
	foreign  int                                              // announcements that do not list us
	listed   map[graspsync.HostPort]int                       // by how many of these, and of clients' twice
	by       map[graspsync.HostPort]map[graspsync.PubKey]bool // up to nearAuthors who list it; the zero key: a client submitted that
	ahead    map[graspsync.RelayURL]bool
	authors  map[graspsync.PubKey]bool // of what is dated ahead
	furthest time.Duration             // how far ahead one was
	least    time.Duration             // how late the soonest live one was
	live     int                       // live events
	liveFrom map[graspsync.RelayURL]bool
	lines    []adviceLine // to be written
}

// adviceLine is a line of the log.
type adviceLine struct {
	msg  string
	more []any
}

func newAdvice(us nip34.Identity, log *slog.Logger) *advice {
	return &advice{
		us: us, log: log, said: make(map[string]bool), listed: make(map[graspsync.HostPort]int),
		by: make(map[graspsync.HostPort]map[graspsync.PubKey]bool), ahead: make(map[graspsync.RelayURL]bool),
		authors: make(map[graspsync.PubKey]bool), liveFrom: make(map[graspsync.RelayURL]bool),
	}
}

// rejected takes in what is not stored.
func (a *advice) rejected(in graspsync.Incoming, reason string) {
	switch {
	case reason == reasonFuture && !a.clock.Load():
		a.isAhead(in)
	case in.Event.Kind == graspsync.KindAnnouncement && !a.ours.Load():
		a.unlisted(in)
	}
}

func (a *advice) isAhead(in graspsync.Incoming) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ahead) < adviceKeys && len(a.authors) < adviceKeys {
		a.ahead[in.Source.Relay], a.authors[in.Event.PubKey] = true, true
	}
	a.furthest = max(a.furthest, time.Until(in.Event.CreatedAt.Time()))
}

func (a *advice) unlisted(in graspsync.Incoming) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.foreign++; a.foreign > adviceMost {
		return
	}
	announcement, err := nip34.ParseAnnouncement(in.Event)
	if err != nil {
		return
	}
	for _, at := range announcement.Services() {
		if _, known := a.listed[at]; !known && len(a.listed) >= adviceKeys {
			continue
		}
		if a.listed[at]++; in.Source.Kind == graspsync.Direct { // who is here means us
			a.listed[at]++
		}
		a.listedBy(at, in)
	}
}

// listedBy remembers who lists a server, as far as that matters.
func (a *advice) listedBy(at graspsync.HostPort, in graspsync.Incoming) {
	who := a.by[at]
	if who == nil {
		who = make(map[graspsync.PubKey]bool, nearAuthors)
		a.by[at] = who
	}
	if len(who) < nearAuthors {
		who[in.Event.PubKey] = true
	}
	if in.Source.Kind == graspsync.Direct {
		who[graspsync.PubKey{}] = true
	}
}

// isMeant reports whether enough list a server that has a name like ours.
func (a *advice) isMeant(at graspsync.HostPort) bool {
	who := a.by[at]
	return a.isNear(at.Host) && (len(who) >= nearAuthors || who[graspsync.PubKey{}])
}

// arrived takes in a live event that is new.
func (a *advice) arrived(in graspsync.Incoming) {
	if a.clock.Load() || in.Source.Kind != graspsync.Live {
		return
	}
	late := time.Since(in.Event.CreatedAt.Time())
	if late.Abs() < clockRight {
		a.clock.Store(true)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.live == 0 || late < a.least {
		a.least = late
	}
	a.live++
	if len(a.liveFrom) < adviceKeys {
		a.liveFrom[in.Source.Relay] = true
	}
}

// look says what is to be said by now.
func (a *advice) look(now time.Time, s *Status) {
	for _, line := range a.due(now, s) {
		a.log.Warn(line.msg, line.more...)
	}
}

// due returns the lines that are to be written.
func (a *advice) due(now time.Time, s *Status) (lines []adviceLine) {
	if s.Repos > 0 {
		a.ours.Store(true)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.began.IsZero() {
		a.began = now
	}
	if now.Sub(a.began) < adviceAfter {
		return nil
	}
	if !a.clock.Load() {
		a.lookAtClock()
	}
	if a.ours.Load() {
		clear(a.listed)
		clear(a.by) // nobody asks any more
	} else {
		a.lookAtDomain(s)
		a.lookAtRelays(s)
	}
	lines, a.lines = a.lines, nil
	return lines
}

func (a *advice) lookAtClock() {
	switch {
	case len(a.ahead) >= clockRelays && len(a.authors) >= clockAuthors:
		a.say("the clock of this machine seems to be slow: events from several relays are dated ahead",
			"relays", len(a.ahead), "authors", len(a.authors), "ahead", a.furthest.Round(time.Second), keyAdvice, "check that the time is synchronised (NTP)")
	case a.live >= clockEvents && len(a.liveFrom) >= clockRelays && a.least >= clockLate:
		a.say("the clock of this machine seems to be fast: all that comes live is dated long ago",
			"relays", len(a.liveFrom), "events", a.live, "behind", a.least.Round(time.Second), keyAdvice, "check that the time is synchronised (NTP)")
	default:
		return
	}
	a.clock.Store(true)
}

// lookAtDomain says that no announcement lists us, and whom they do. A server that we are connected
// to is another one, whatever its name is like.
func (a *advice) lookAtDomain(s *Status) {
	if a.foreign == 0 || a.us.IsZero() {
		return
	}
	others := make(map[graspsync.HostPort]bool)
	for _, r := range s.Relays {
		if r.Connects > 0 {
			others[r.URL.HostPort()] = true
		}
	}
	most, near := graspsync.HostPort{}, graspsync.HostPort{}
	for at, n := range a.listed {
		if n > a.listed[most] || n == a.listed[most] && at.String() < most.String() {
			most = at
		}
		if a.isMeant(at) && !others[at] && (n > a.listed[near] || n == a.listed[near] && at.String() < near.String()) {
			near = at
		}
	}
	want := []any{"announcements", a.foreign, "want_relay", a.us.RelayURL(), "want_clone", a.us.CloneBase() + "/<npub>/<identifier>.git"}
	if near.Port > 0 {
		a.say("announcements do not list this server but one whose name is like it: is the domain right?",
			append(want, "listed", near.String(), "listed_by", a.listed[near], keyAdvice, "set the domain to what announcements list, with its port, or have owners list this one")...)
		return
	}
	if most.Port > 0 {
		want = append(want, "listed_most", most.String())
	}
	a.say("announcements come, and none lists this server: repositories come here by listing it",
		append(want, keyAdvice, "an announcement must have both among its relays and clone URLs; if some should, the domain is wrong")...)
}

// lookAtRelays says that nobody is followed, or nobody can be.
func (a *advice) lookAtRelays(s *Status) {
	if len(s.Relays) == 0 {
		a.say("nothing is followed: no repository here lists a relay, and there is no bootstrap relay",
			keyAdvice, "publish an announcement here that lists "+a.us.RelayURL()+", or name bootstrap relays")
		return
	}
	for _, r := range s.Relays {
		if r.Connects > 0 || r.Failures == 0 {
			return
		}
	}
	a.say("no relay can be reached", "relays", len(s.Relays), keyRelay, s.Relays[0].URL.String(), keyErr, s.Relays[0].LastError,
		keyAdvice, "check the network of this machine, its DNS, and whether it may reach these addresses")
}

// keyAdvice has what to do.
const keyAdvice = "advice"

// say says something once.
func (a *advice) say(msg string, more ...any) {
	if !a.said[msg] {
		a.said[msg] = true
		a.lines = append(a.lines, adviceLine{msg, more})
	}
}

// isNear reports whether a host may be meant to be ours: the same one at another port, above or
// below it, a typing error away, or one that only this machine or network can mean.
func (a *advice) isNear(host string) bool {
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && (ip.IsLoopback() || ip.IsPrivate()) {
		return true
	}
	for _, ours := range a.us.Hosts() {
		if host == ours || strings.HasSuffix(host, "."+ours) || strings.HasSuffix(ours, "."+host) || parent(host) == parent(ours) && isOwn(parent(ours)) || edits(host, ours) <= 2 {
			return true
		}
	}
	return false
}

// parent is a host without its first label.
func parent(host string) string {
	_, rest, _ := strings.Cut(host, ".")
	return rest
}

// isOwn reports whether names below a domain are likely of one owner: those of example.com, and not
// those of com or co.uk.
func isOwn(domain string) bool {
	first, _, several := strings.Cut(domain, ".")
	return several && len(first) > 3
}

// edits is how many letters must be put in, left out or replaced to make one name of another; more
// than 2 for long names that differ much.
func edits(a, b string) int {
	if len(a)-len(b) > 2 || len(b)-len(a) > 2 || len(a) > 255 || len(b) > 255 {
		return 3
	}
	return nearest.Distance(a, b)
}
