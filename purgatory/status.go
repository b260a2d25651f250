package purgatory

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// Status is what a [Purgatory] knows at one moment.
type Status struct {
	At      time.Time     `json:"at"`
	Waiting []EntryStatus `json:"waiting"` // the first [StatusEntries] to expire
	// How many wait, by class, and how large their events are.
	Announcements int   `json:"announcements"`
	States        int   `json:"states"`
	PullRequests  int   `json:"pull_requests"`
	Placeholders  int   `json:"placeholders"`
	Relatives     int   `json:"relatives"` // announcements of those whom others list that wait
	Bytes         int64 `json:"bytes"`
	// Since the start.
	Held       uint64            `json:"held"`
	Released   uint64            `json:"released"`
	Expired    uint64            `json:"expired"`
	Replaced   uint64            `json:"replaced"`
	Deleted    uint64            `json:"deleted"`
	Refused    uint64            `json:"refused"`   // by the relay when their data was here
	Displaced  uint64            `json:"displaced"` // by others, when there were no places left
	Unwanted   uint64            `json:"unwanted"`  // relatives that nobody lists any more
	Fetches    uint64            `json:"fetches"`   // requests for git data
	Failed     uint64            `json:"failed"`    // of them
	Objects    uint64            `json:"objects"`   // wanted ones that came
	Fetched    uint64            `json:"fetched_bytes"`
	Dropped    map[string]uint64 `json:"dropped"`    // by a bound
	Unreadable uint64            `json:"unreadable"` // entries on the disk
	Panics     map[string]uint64 `json:"panics"`     // that were contained, by whose code it was; always a bug

	Maintenance MaintenanceStatus `json:"maintenance"`
}

// StatusEntries is how many entries a [Status] names.
const StatusEntries = 100

// EntryStatus is one event that waits.
type EntryStatus struct {
	ID       string    `json:"id"`
	Class    string    `json:"class"` // announcement, state, pull request, placeholder
	Repos    []string  `json:"repos"`
	ByUser   bool      `json:"by_user"`
	Since    time.Time `json:"since"`
	Deadline time.Time `json:"deadline"`
	Soft     bool      `json:"soft"`    // it has expired, and can be revived
	Missing  int       `json:"missing"` // objects of its repositories, as of the last look
}

// Status returns what waits, and what was.
func (p *Purgatory) Status() Status {
	st := Status{
		At: time.Now(), Held: p.stats.held.Load(), Released: p.stats.fates[Released].Load(),
		Expired: p.stats.fates[Expired].Load(), Replaced: p.stats.fates[Replaced].Load(),
		Deleted: p.stats.fates[Deleted].Load(), Refused: p.stats.fates[NotStored].Load(), Displaced: p.stats.fates[Displaced].Load(), Unwanted: p.stats.fates[Unwanted].Load(), Fetches: p.stats.fetches.Load(), Failed: p.stats.failed.Load(),
		Objects: p.stats.objects.Load(), Fetched: p.stats.bytes.Load(), Unreadable: p.stats.unreadable.Load(),
	}
	st.Dropped, st.Panics = p.stats.byName()
	st.Maintenance = p.upkeep.snapshot()
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.ledger.All()
	st.Bytes = p.ledger.Bytes()
	for _, e := range all {
		switch e.Class {
		case ledger.Announcement:
			st.Announcements++
		case ledger.State:
			st.States++
		case ledger.PullRequest:
			st.PullRequests++
		case ledger.Placeholder:
			st.Placeholders++
		case ledger.Relative:
			st.Relatives++
		}
	}
	slices.SortStableFunc(all, func(a, b ledger.Entry) int { return a.Deadline.Compare(b.Deadline) })
	st.Waiting = make([]EntryStatus, 0, min(len(all), StatusEntries))
	for _, e := range all[:min(len(all), StatusEntries)] {
		st.Waiting = append(st.Waiting, p.entryStatus(e))
	}
	return st
}

// entryStatus is called with mu held.
func (p *Purgatory) entryStatus(e ledger.Entry) EntryStatus {
	st := EntryStatus{
		ID: e.ID.String(), Class: e.Class.String(), ByUser: e.ByUser, Since: e.Seen, Deadline: e.Deadline, Soft: e.Soft,
	}
	for _, ref := range e.Repos {
		st.Repos = append(st.Repos, ref.String())
		st.Missing += len(p.needs[ref.Identifier][ref].ids)
	}
	return st
}

// byName returns what is counted by name.
func (s *stats) byName() (dropped, panics map[string]uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped, panics = make(map[string]uint64, len(s.dropped)), make(map[string]uint64, len(s.panics))
	maps.Copy(dropped, s.dropped)
	maps.Copy(panics, s.panics)
	return dropped, panics
}

// Collector returns the metrics, computed when they are asked for. The caller
// registers it on a registry of its own. namespace goes before their names, without
// an underscore; with an empty one they have the names that operators know.
func (p *Purgatory) Collector(namespace string) prometheus.Collector {
	return newCollector(p, namespace)
}

type collector struct {
	p                                         *Purgatory
	queue, attempts, oids, inFlight, requests *prometheus.Desc
	waiting, fates, bytes, dropped, panics    *prometheus.Desc

	upkeepDue, upkeepRuns, upkeepSeconds, upkeepFreed, upkeepRemoved, packs, looseRefs *prometheus.Desc
}

func newCollector(p *Purgatory, namespace string) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "purgatory", name), help, labels, nil)
	}
	return &collector{
		p:        p,
		queue:    desc("sync_queue_size", "Repositories that git data is hunted for."),
		attempts: desc("sync_attempts_total", "Requests for git data, by what they came to.", "result"),
		oids:     desc("sync_oids_fetched_total", "Wanted objects that came."),
		inFlight: desc("domain_in_flight", "Requests under way.", "domain"),
		requests: desc("domain_requests_total", "Requests for git data.", "domain"),
		waiting:  desc("waiting", "Events that wait for git data, by kind.", "class"),
		fates:    desc("ended_total", "Events that wait no longer, by why.", "fate"),
		bytes:    desc("fetched_bytes_total", "Bytes of git data that came."),
		dropped:  desc("dropped_total", "What a bound dropped.", "reason"),
		panics:   desc("panics_total", "Panics that were contained, by whose code it was.", "where"),

		upkeepDue:     desc("maintenance_due", "Repositories that wait to be put in order."),
		upkeepRuns:    desc("maintenance_runs_total", "How often a repository was put in order, by what it came to.", "result"),
		upkeepSeconds: desc("maintenance_seconds_total", "Time that was spent putting repositories in order."),
		upkeepFreed:   desc("maintenance_freed_bytes", "Bytes that putting repositories in order has freed; less where it keeps two copies for a while."),
		upkeepRemoved: desc("maintenance_packs_removed_total", "Packs that became part of others, or were not needed."),
		packs:         desc("packs", "Packs of all repositories, when all had been put in order last."),
		looseRefs:     desc("loose_refs", "Refs with a file of their own of all repositories, when all had been put in order last."),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.queue, c.attempts, c.oids, c.inFlight, c.requests, c.waiting, c.fates, c.bytes, c.dropped, c.panics,
		c.upkeepDue, c.upkeepRuns, c.upkeepSeconds, c.upkeepFreed, c.upkeepRemoved, c.packs, c.looseRefs,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	st := c.p.Status()
	send := func(d *prometheus.Desc, typ prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, typ, v, labels...)
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	send(c.queue, gauge, float64(c.p.stats.queue.Load()))
	send(c.attempts, counter, float64(st.Fetches-st.Failed), "success")
	send(c.attempts, counter, float64(st.Failed), "failure")
	send(c.oids, counter, float64(st.Objects))
	send(c.bytes, counter, float64(st.Fetched))
	m := st.Maintenance
	send(c.upkeepDue, gauge, float64(m.Due))
	send(c.upkeepRuns, counter, float64(m.Runs-m.Failed), "success")
	send(c.upkeepRuns, counter, float64(m.Failed), "failure")
	send(c.upkeepSeconds, counter, m.Took.Seconds())
	send(c.upkeepFreed, gauge, float64(m.Freed))
	send(c.upkeepRemoved, counter, float64(m.Removed))
	send(c.packs, gauge, float64(m.Packs))
	send(c.looseRefs, gauge, float64(m.LooseRefs))
	for class, n := range map[string]int{
		"announcement": st.Announcements, "state": st.States, "pull_request": st.PullRequests, "placeholder": st.Placeholders, "relative": st.Relatives,
	} {
		send(c.waiting, gauge, float64(n), class)
	}
	for fate, n := range map[Fate]uint64{
		Released: st.Released, Expired: st.Expired, Replaced: st.Replaced, Deleted: st.Deleted, NotStored: st.Refused, Displaced: st.Displaced, Unwanted: st.Unwanted,
	} {
		send(c.fates, counter, float64(n), fate.String())
	}
	for reason, n := range st.Dropped {
		send(c.dropped, counter, float64(n), reason)
	}
	for whose, n := range st.Panics {
		send(c.panics, counter, float64(n), whose)
	}
	for domain, d := range c.p.stats.domains() {
		send(c.inFlight, gauge, float64(d.inFlight), domain)
		send(c.requests, counter, float64(d.requests), domain)
	}
}

// domainStats counts the requests to one server.
type domainStats struct {
	inFlight int
	requests uint64
}

// maxDomains bounds the servers with metrics of their own; the others share a label.
const maxDomains = 200

// otherDomains is that label.
const otherDomains = "other"

// request counts a request to a server, and its end when the function that it
// returns is called.
func (s *stats) request(domain string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byDomain == nil {
		s.byDomain = make(map[string]*domainStats)
	}
	d := s.byDomain[domain]
	if d == nil && len(s.byDomain) >= maxDomains {
		domain = otherDomains
		d = s.byDomain[domain]
	}
	if d == nil {
		d = &domainStats{}
		s.byDomain[strings.Clone(domain)] = d
	}
	d.inFlight++
	d.requests++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		d.inFlight--
	}
}

func (s *stats) domains() map[string]domainStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]domainStats, len(s.byDomain))
	for domain, d := range s.byDomain {
		out[domain] = *d
	}
	return out
}
