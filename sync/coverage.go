package sync

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/session"
)

// Bounds of what is remembered per relay of what it lacks and what it had.
const (
	lackingIDs    = 2_048 // events that it lacks, in one pass
	coverageRepos = 1_024 // repositories counted apart
	lookupRefs    = 16    // repositories that one event counts for
)

// peerLacksEvery is the least time between two warnings about one relay.
const peerLacksEvery = 24 * time.Hour

// coverage is both counts of reconciliation with one relay, per repository. The zero
// value is empty.
type coverage struct {
	mu sync.Mutex
	// guarded by mu
	comparedAt time.Time                  // the last reconciliation ended, zero: none did
	seen       map[graspsync.EventID]bool // that it lacks, this pass
	lacks      map[graspsync.RepoRef]int  // events, this pass
	lacksAll   int                        // events that count for any repository
	had        map[graspsync.RepoRef]int  // that we missed, since the start
	looking    int                        // look-ups under way
	toldAt     time.Time                  // of the last warning
}

// begin starts a pass: what it lacks is counted anew.
func (c *coverage) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.lacks, c.lacksAll = nil, nil, 0
}

// missed counts an event that the relay had and we missed.
func (c *coverage) missed(refs []graspsync.RepoRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ref := range refs {
		countRepo(&c.had, ref)
	}
}

func countRepo(m *map[graspsync.RepoRef]int, ref graspsync.RepoRef) {
	if _, ok := (*m)[ref]; ok || len(*m) < coverageRepos {
		lazy.Put(m, ref, (*m)[ref]+1)
	}
}

// fresh notes a reconciliation and returns those of the ids that were not counted
// in this pass, as far as there is room.
func (c *coverage) fresh(ids []graspsync.EventID, now time.Time) []graspsync.EventID {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.comparedAt = now
	var out []graspsync.EventID
	for _, id := range ids {
		if len(c.seen) >= lackingIDs {
			break
		}
		if !c.seen[id] {
			lazy.Put(&c.seen, id, true)
			out = append(out, id)
		}
	}
	if len(out) > 0 {
		c.looking++
	}
	return out
}

// counted takes in what a look-up found: for each event the repositories for which
// the relay should have it.
func (c *coverage) counted(events [][]graspsync.RepoRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looking--
	for _, refs := range events {
		c.lacksAll++
		for _, ref := range refs {
			countRepo(&c.lacks, ref)
		}
	}
}

// worst returns the repository of which the relay lacks most, if it is time to say
// so and nothing is being looked up.
func (c *coverage) worst(now time.Time) (ref graspsync.RepoRef, count, repos int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looking > 0 || len(c.lacks) == 0 || (!c.toldAt.IsZero() && now.Sub(c.toldAt) < peerLacksEvery) {
		return ref, 0, 0
	}
	c.toldAt = now
	for _, r := range slices.SortedFunc(maps.Keys(c.lacks), graspsync.RepoRef.Compare) {
		if c.lacks[r] > count {
			ref, count = r, c.lacks[r]
		}
	}
	return ref, count, len(c.lacks)
}

// of returns the counts of one repository.
func (c *coverage) of(ref graspsync.RepoRef) (lacks, had int, comparedAt time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lacks[ref], c.had[ref], c.comparedAt
}

func (c *coverage) fill(r *RelayStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Lacks, r.ComparedAt = c.lacksAll, c.comparedAt
}

// lacking is what a look-up found of one connection: of each event that the relay has not the
// repositories that it belongs to.
type lacking struct {
	conn   *conn
	events [][]graspsync.RepoRef
}

// compared has found out to which repositories the events belong that a relay was
// found to lack.
func (c *conn) compared(r session.Report) {
	if r.Reconciled == 0 {
		return
	}
	ids := c.stats.coverage.fresh(r.Lacking, time.Now())
	if len(ids) == 0 {
		return
	}
	c.m.wg.Go(func() {
		events, err := c.m.lookUp(c.ctx, ids)
		if err != nil && c.ctx.Err() == nil {
			c.m.cfg.Logger.Debug("looking up what a relay lacks failed", keyRelay, c.url.String(), keyErr, err)
		}
		c.m.post(lacking{conn: c, events: events})
	})
}

// lookUp returns, for each of the events that belong to any, to which repositories they do.
func (m *SyncManager) lookUp(ctx context.Context, ids []graspsync.EventID) (out [][]graspsync.RepoRef, err error) {
	defer m.counters.recovered(&err, "store")
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Times.StoreTimeout)
	defer cancel()
	for _, f := range filters.ByID(ids, saveBatch) {
		f.Limit = 0
		for ev, err := range m.store.Events(ctx, f) {
			if err != nil {
				return out, err
			}
			if refs := m.index.reposOf(ev); len(refs) > 0 {
				out = append(out, refs)
			}
		}
	}
	return out, nil
}

// onLacking counts the events that a relay should have: those of repositories that are followed
// there.
func (l *loop) onLacking(msg lacking) {
	var events [][]graspsync.RepoRef
	for _, refs := range msg.events {
		refs = slices.DeleteFunc(refs, func(ref graspsync.RepoRef) bool { return !l.plan.Follows(ref, msg.conn.url) })
		if len(refs) > 0 {
			events = append(events, refs)
		}
	}
	msg.conn.stats.coverage.counted(events)
}

// peerLacks warns of what a relay that was compared to its end lacks.
func (l *loop) peerLacks(u graspsync.RelayURL, st *relayStats, now time.Time) {
	ref, count, repos := st.coverage.worst(now)
	if count == 0 {
		return
	}
	l.m.cfg.Logger.Warn("peer lacks events that we have", keyRelay, u.String(),
		"repo", graspsync.Printable(ref.String()), "count", count, "repos", repos)
	l.m.observe(PeerLacks{Relay: u, Repo: ref, Count: count})
}

// reposOf returns the repositories that an event belongs to, at most 16: its own, if
// it is an announcement or a state, those that it tags, and those of the patches,
// pull requests and issues, and of what descends from these, that it tags.
func (x *index) reposOf(ev *nostr.Event) []graspsync.RepoRef {
	refs := nip34.RepoRefs(ev)
	if ev.Kind == graspsync.KindAnnouncement || ev.Kind == graspsync.KindState {
		if owner, err := graspsync.ParsePubKey(ev.PubKey); err == nil {
			refs = append(refs, graspsync.RepoRef{Owner: owner, Identifier: ev.Tags.GetD()})
		}
	}
	ids := nip34.EventRefs(ev)
	x.mu.RLock()
	for _, id := range ids {
		if root, ok := x.tables.roots[id]; ok {
			refs = append(refs, root.refs()...)
		} else if n := x.tables.descent.nodes[refKey(id)]; n != nil && n.place.depth > 0 {
			refs = append(refs, x.tables.reposBelow(n.place)...)
		}
	}
	x.mu.RUnlock()
	slices.SortFunc(refs, graspsync.RepoRef.Compare)
	refs = slices.Compact(refs)
	return refs[:min(len(refs), lookupRefs)]
}
