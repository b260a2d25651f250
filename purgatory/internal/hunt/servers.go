package hunt

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// servers are the domains that are known, and which of them, and of their sites, are slow.
type servers struct {
	limit     Limit
	limits    map[graspsync.HostPort]Limit // instead of limit
	domains   map[graspsync.HostPort]*domain
	inSites   map[string]map[*domain]struct{} // those with requests in flight, by site
	slow      int                             // of all, those whose last request took long
	slowSites map[string]time.Time            // of which the last request took long, and when that ended
}

func newServers(cfg Config) servers {
	return servers{
		limit: cfg.DefaultLimit, limits: cfg.Limits, domains: make(map[graspsync.HostPort]*domain),
		inSites: make(map[string]map[*domain]struct{}), slowSites: make(map[string]time.Time),
	}
}

// half is that of a site whose servers have delivered, or the other one.
type half struct {
	site      string
	delivered bool
}

// domain returns the domain of a URL, making it known.
func (s *servers) domain(u graspsync.CloneURL) *domain { return s.domainOf(u.HostPort()) }

func (s *servers) domainOf(a graspsync.HostPort) *domain {
	d := s.domains[a]
	if d == nil {
		d = &domain{limit: s.limit, site: s.site(a), inSites: s.inSites}
		if l, ok := s.limits[a]; ok {
			d.limit = l
		}
		s.domains[a] = d
	}
	return d
}

// site is that of a server. One with a [Limit] of its own is one for itself.
func (s *servers) site(a graspsync.HostPort) string {
	if _, own := s.limits[a]; own {
		return a.String()
	}
	return site(a)
}

// order puts servers that delivered before the others, and slow ones after others like
// them.
func (s *servers) order(urls []graspsync.CloneURL) []graspsync.CloneURL {
	out := slices.Clone(urls)
	slices.SortStableFunc(out, func(a, b graspsync.CloneURL) int { return sooner(s.domain(a), s.domain(b)) })
	return out
}

// sooner orders servers of a repository: those that delivered before the others, and then
// the slow ones last.
func sooner(a, b *domain) int {
	switch {
	case a.delivered != b.delivered || a.slow == b.slow:
		return cmp.Compare(b.delivered, a.delivered)
	case b.slow:
		return -1
	}
	return 1
}

// timed notes how long a request took that has ended.
func (s *servers) timed(now time.Time, r *request) {
	slow := r.isLong(now)
	if d := r.domain; d.slow != slow {
		d.slow = slow
		if s.slow--; slow {
			s.slow += 2
		}
	}
	if slow {
		s.slowSites[r.domain.site] = now
	} else {
		delete(s.slowSites, r.domain.site)
	}
	if r.place == ofAttempt {
		r.entry.slow = slow
	}
}

// anySlow reports whether anything is known to be slow.
func (s *servers) anySlow() bool { return s.slow > 0 || len(s.slowSites) > 0 }

// isSlowSite reports whether the last request to a site was slow, or one that is under way takes long by now.
func (s *servers) isSlowSite(name string, long map[string]struct{}) bool {
	_, was := s.slowSites[name]
	_, is := long[name]
	return was || is
}

// looksSlow reports whether the server that is to be asked next for a repository was slow, or its site is.
func (s *servers) looksSlow(e *entry, long map[string]struct{}) bool {
	var next domain // one that is not known
	at := -1
	for i, u := range e.urls {
		if _, tried := e.tried[u]; tried {
			continue
		}
		var d domain
		if known := s.domains[u.HostPort()]; known != nil {
			d.delivered, d.slow = known.delivered, known.slow
		}
		if at < 0 || sooner(&d, &next) < 0 {
			next, at = d, i
		}
	}
	if next.slow || at < 0 || next.delivered > 0 { // of a hub that delivers one repository may be large
		return next.slow
	}
	return s.isSlowSite(s.siteOf(e, at), long)
}

// siteOf is the site of one of the URLs of a repository. It is remembered: all that wait are looked at each time.
func (s *servers) siteOf(e *entry, i int) string {
	if len(e.sites) != len(e.urls) {
		e.sites = make([]string, len(e.urls))
	}
	if e.sites[i] == "" {
		e.sites[i] = s.site(e.urls[i].HostPort())
	}
	return e.sites[i]
}

// next returns the domain whose turn it is: that was asked longest ago of those where something waits that may be asked for; slow ones
// count as asked later. nil: there is none.
func (s *servers) next(now time.Time, x *requests) (best *domain) {
	may := x.mayAsk(now)
	var at graspsync.HostPort
	var since time.Time
	for a, d := range s.domains {
		if len(d.turns) == 0 || !d.open(now) || !d.anyMay(may) {
			continue
		}
		used := d.usedAt
		if d.slow || x.isLong(now, d) {
			used = used.Add(slowBehind)
		}
		if best == nil || cmp.Or(used.Compare(since), compareAuthority(a, at)) < 0 {
			best, at, since = d, a, used
		}
	}
	return best
}

// waiting returns what was left to domains that would be asked now.
func (s *servers) waiting(now time.Time, may mayAsk) (out []waiter) {
	for _, d := range s.domains {
		if len(d.turns) > 0 && d.open(now) && !d.broken.Waits(now) {
			out = append(out, d.waiters(may)...)
		}
	}
	return out
}

// pools are those of the sites that have no place for what waits. Domains that have delivered have another one.
func (s *servers) pools(now time.Time, x *requests) (all []pool) {
	pools := make(map[half]*pool)
	var full []*domain
	for _, d := range s.domains {
		if len(d.turns) == 0 || !d.full() || !d.rateAllows(now) || d.broken.Waits(now) {
			continue
		}
		full = append(full, d)
		p := pools[d.half()]
		if p == nil {
			p = &pool{places: d.limit.Concurrent, site: true}
			pools[d.half()] = p
		}
		for id, r := range x.all {
			if (r.half() == d.half() || r.domain == d) && !slices.Contains(p.held, id) {
				p.held = append(p.held, id)
			}
		}
	}
	for at, p := range pools {
		long := 0
		for _, id := range p.held {
			if now.Sub(x.all[id].at) >= slowAfter {
				long++
			}
		}
		if slices.Sort(p.held); long <= p.lasting() {
			delete(pools, at) // nobody gives way, however many wait
		}
	}
	for _, d := range full {
		if p := pools[d.half()]; p != nil {
			p.waiting = append(p.waiting, d.waiters(x.mayAsk(now))...)
		}
	}
	order := func(a, b half) int {
		return cmp.Or(cmp.Compare(a.site, b.site), cmp.Compare(btoi(a.delivered), btoi(b.delivered)))
	}
	for _, at := range slices.SortedFunc(maps.Keys(pools), order) {
		all = append(all, *pools[at])
	}
	return all
}

// forget drops the domains used longest ago, beyond most, and the sites that were slow longest ago. Domains that
// still count for something are kept. It reports whether it is not known any more of somebody who is slow.
func (s *servers) forget(now time.Time, most int) (any bool) {
	for len(s.slowSites) > most {
		oldest := ""
		for name, at := range s.slowSites {
			if oldest == "" || cmp.Or(at.Compare(s.slowSites[oldest]), cmp.Compare(name, oldest)) < 0 {
				oldest = name
			}
		}
		delete(s.slowSites, oldest)
		any = true
	}
	if len(s.domains) <= most {
		return any
	}
	var idle []graspsync.HostPort
	for a, d := range s.domains {
		d.expire(now)
		if d.inFlight == 0 && len(d.turns) == 0 && len(d.starts) == 0 {
			idle = append(idle, a)
		}
	}
	slices.SortFunc(idle, func(a, b graspsync.HostPort) int {
		return cmp.Or(s.domains[a].usedAt.Compare(s.domains[b].usedAt), compareAuthority(a, b))
	})
	for _, a := range idle[:min(len(idle), len(s.domains)-most)] {
		if s.domains[a].slow {
			s.slow--
		}
		delete(s.domains, a)
		any = true
	}
	return any
}

// inFlight yields how many requests each domain has under way.
func (s *servers) inFlight() map[graspsync.HostPort]int {
	out := make(map[graspsync.HostPort]int)
	for a, d := range s.domains {
		if d.inFlight > 0 {
			out[a] = d.inFlight
		}
	}
	return out
}

// restore takes over what an earlier process left of a domain.
func (s *servers) restore(now time.Time, p PastDomain, brokenMax time.Duration) {
	d := s.domainOf(p.Domain)
	d.usedAt = backoff.Earlier(p.Last, now)
	d.broken = backoff.Streak{Times: p.Failures, Until: p.BrokenUntil}.Restored(now, brokenMax)
	if now.Sub(d.usedAt) < window {
		for range min(p.Recent, d.limit.PerMinute) {
			d.starts = append(d.starts, d.usedAt)
		}
	}
}

func compareAuthority(a, b graspsync.HostPort) int {
	return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
}
