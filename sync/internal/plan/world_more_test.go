package plan

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// more feeds one of the rarer inputs.
func (w *world) more() {
	kinds := 12
	if !w.calm { // calm worlds have no passes
		kinds = 15
	}
	switch w.src.n(kinds) {
	case 12, 13, 14:
		w.command()
	case 0:
		if u, c := w.connection(); c != nil {
			in := LimitsChanged{Relay: u, Epoch: w.epoch(u), Limits: w.limits()}
			if in.Epoch == c.epoch {
				c.limits = in.Limits
			}
			w.step(in)
		}
	case 1:
		in := Named{Relay: w.url()}
		if w.src.n(4) == 0 {
			in.Relay = graspsync.RelayURL{}
		}
		for range w.src.n(4) {
			in.IDs = append(in.IDs, rootID(w.src.n(30)))
		}
		w.step(in)
	case 2:
		w.step(Unserved{Relay: w.url(), IDs: []graspsync.EventID{rootID(w.src.n(30))}})
	case 3, 4:
		w.step(Settled{At: w.now.Add(-time.Duration(w.src.n(30)) * time.Second)})
		if w.src.n(2) == 0 {
			w.kept = allKept(w.plan)
		}
	case 5:
		w.restart()
	case 6, 7, 8:
		w.skip()
	case 9:
		if w.src.n(2) == 0 {
			w.step(Saves{})
		}
	case 10:
		w.jump()
	case 11:
		w.refuse()
	}
}

// command feeds a random input of an operator.
func (w *world) command() {
	switch w.src.n(4) {
	case 0:
		w.step(Bootstrap{Relay: w.url(), Not: true})
	case 1:
		w.step(Retry{Relay: w.url()})
	case 2:
		w.step(Resync{Relay: w.url()})
	case 3:
		w.step(ResyncRepo{Ref: worldRef(w.src.n(worldRepos))})
	}
}

// skip drops live events.
func (w *world) skip() {
	u, c := w.connection()
	if c == nil {
		return
	}
	var live []string
	for _, keys := range c.live {
		live = slices.AppendSeq(live, maps.Keys(keys))
	}
	slices.Sort(live)
	if live = slices.Compact(live); len(live) == 0 {
		return
	}
	if key := live[w.src.n(len(live))]; key != "kinds" {
		w.miss(u, key)
	}
	w.step(Skipped{Relay: u, Epoch: c.epoch, Since: w.now.Add(-time.Duration(w.src.n(3)) * time.Second)})
}

// jump sets the clock. A world has no other clock, so waits end later or sooner. Later events have
// the new time.
func (w *world) jump() {
	by := []time.Duration{-time.Hour, -40 * time.Second, -3 * time.Second, 40 * time.Second, 5 * time.Minute}[w.src.n(5)]
	if w.long && w.src.n(2) == 0 {
		by = []time.Duration{time.Hour, 30 * time.Hour, 40 * 24 * time.Hour}[w.src.n(3)]
	}
	if !w.long { // a step back starts a pass
		by = max(by, 0)
	}
	w.jumps++
	w.now, w.shift, w.back = w.now.Add(by), w.shift+by, w.back+max(0, -by)
	w.earliest = min(w.earliest, w.now.Unix())
	w.step(ClockJumped{By: by})
}

// refuse ends an attempt before a connection exists, and in long worlds several in a row.
func (w *world) refuse() {
	times := 1
	if w.long {
		times = 1 + w.src.n(8)
	}
	i := slices.IndexFunc(w.urls, func(u graspsync.RelayURL) bool { return w.conns[u] != nil && !w.conns[u].connected })
	if i < 0 {
		return
	}
	for u := w.urls[i]; times > 0 && w.conns[u] != nil && !w.conns[u].connected; times-- {
		w.step(DialFailed{Relay: u, Epoch: w.conns[u].epoch, NotDialed: true})
		if r := w.plan.relays[u]; r != nil && r.dial.retryAt.After(w.now) && times > 1 {
			w.now = r.dial.retryAt
			w.step(Tick{})
		}
	}
}

// after applies the expected effects of an input and compares them with the plan.
func (w *world) after(in Input) {
	switch in := in.(type) {
	case Retry:
		w.checkRetried(in.Relay)
	case Resync:
		w.checkRetried(in.Relay)
	case DialFailed:
		w.checkRefused(in)
	case Connected:
		if c := w.conns[in.Relay]; c != nil && c.epoch == in.Epoch {
			delete(w.refusals, in.Relay)
		}
	case Restore:
		w.checkRestored(in)
	}
	for u, r := range w.plan.relays {
		if r.passAt.Equal(w.passes[u]) {
			continue
		}
		if _, jumped := in.(ClockJumped); !jumped {
			clear(w.deleted[u])
		}
		w.passes[u] = r.passAt
	}
}

// checkRetried checks that a relay waits only for its turn after Retry. A connected relay may have
// yielded to another in the same step.
func (w *world) checkRetried(u graspsync.RelayURL) {
	delete(w.refusals, u)
	if r := w.plan.relays[u]; r != nil && !w.holding {
		w.must(r.dial.connecting || r.dial.connected || len(r.dial.places) > 0, "it is its turn next")
	}
}

// checkRefused checks the time of the next attempt after a local limit prevented one: the wait
// doubles up to ten minutes, and the attempt is never earlier than planned before.
func (w *world) checkRefused(in DialFailed) {
	r := w.plan.relays[in.Relay]
	if !w.failing || r == nil {
		return
	}
	if !in.NotDialed {
		delete(w.refusals, in.Relay)
		w.must(r.dial.retryAt.Equal(in.RetryAt), "when a relay that failed is tried again")
		return
	}
	w.refusals[in.Relay]++
	least := min(w.plan.cfg.RetryBase<<(w.refusals[in.Relay]-1), 10*time.Minute)
	wait := r.dial.retryAt.Sub(w.now)
	w.must(wait >= least && wait <= least+least/10, fmt.Sprintf("refused for the %d. time, and tried again after %v", w.refusals[in.Relay], wait))
}

// checkRestored checks that exactly the usable part of the saved state is left.
func (w *world) checkRestored(in Restore) {
	var want []Kept
	for _, k := range in.Relays {
		if !k.Mark.After(w.now) && !w.now.After(k.Mark.Add(w.plan.cfg.QuickReconnect)) {
			want = append(want, k)
		}
	}
	want = want[:min(len(want), w.plan.cfg.MaxRelays)]
	require.ElementsMatch(w.t, want, allKept(w.plan), "what was kept")
}

// drawn counts, for each type of input, how often each field was not zero.
type drawn map[reflect.Type]map[string]int

func (d drawn) note(in Input) {
	v := reflect.ValueOf(in)
	if d[v.Type()] == nil {
		d[v.Type()] = make(map[string]int)
	}
	if v.Kind() != reflect.Struct {
		return
	}
	for f := range v.Type().Fields() {
		if !v.FieldByIndex(f.Index).IsZero() {
			d[v.Type()][f.Name]++
		}
	}
}

// complete checks that each type of input was fed with each of its fields, because other inputs are
// not tested.
func (d drawn) complete(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var src []byte
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		src = append(src, text...)
	}
	types := make(map[string]reflect.Type)
	for typ := range d {
		types[typ.Name()] = typ
	}
	found := regexp.MustCompile(`(?m)^func \((?:in )?(\w+)\) apply\(`).FindAllSubmatch(src, -1)
	require.NotEmpty(t, found)
	for _, m := range found {
		typ := types[string(m[1])]
		if !assert.NotNil(t, typ, "%s is never drawn", m[1]) || typ.Kind() != reflect.Struct {
			continue
		}
		for f := range typ.Fields() {
			assert.Positive(t, d[typ][f.Name], "%s is never drawn with %s", m[1], f.Name)
		}
	}
}

// calmInput feeds mostly inputs that make progress.
func (w *world) calmInput() {
	w.now = w.now.Add([]time.Duration{0, 0, time.Second, 5 * time.Second, 30 * time.Second}[w.src.n(5)])
	switch w.src.n(20) {
	case 0:
		w.step(w.changes())
	case 1, 2, 17:
		w.dialed()
	case 3:
		w.lose()
	case 4, 5, 6:
		w.done()
	case 7:
		switch w.src.n(4) {
		case 0:
			w.closeLive()
		case 1:
			w.restart()
		}
	case 8, 9:
		if at, ok := w.plan.NextWake(); ok && at.Sub(w.now) < 10*time.Minute { // no daily pass
			w.wake()
		}
	case 10:
		if w.src.n(3) == 0 {
			w.more()
		}
	case 18:
		if w.src.n(4) == 0 {
			w.jump()
			return
		}
		w.dialed()
	case 19:
		w.step(Settled{At: w.now})
		if w.src.n(2) == 0 {
			w.kept = allKept(w.plan)
		}
	default:
		w.publish()
	}
}

func (w *world) limits() relaylimits.Requests {
	if w.calm { // fewer than are wanted
		return relaylimits.Requests{MaxMessage: 64 << 10, MaxFilters: 1 + w.src.n(3), MaxSubscriptions: 3 + w.src.n(5)}
	}
	return relaylimits.Requests{MaxMessage: 700 << w.src.n(4), MaxFilters: 3 + w.src.n(20), MaxSubscriptions: 4 + w.src.n(17),
		MaxRetained: []int{0, 0, 6_000, 20_000}[w.src.n(4)],
	}
}

func (w *world) why() wire.Refusal {
	return []wire.Refusal{wire.RefusalOther, wire.RefusalTooManySubs, wire.RefusalRateLimited, wire.RefusalBadRequest, wire.RefusalOverflow, wire.RefusalTooManyBytes, wire.RefusalRestricted}[w.src.n(7)]
}

// createdAt returns the age of a root event. Several have the same age.
func createdAt(id graspsync.EventID) nostr.Timestamp { return nostr.Timestamp(id[3]) * 7 % 13 }

func (w *world) rootChange(id graspsync.EventID) RootChange {
	return RootChange{
		ID: id, CreatedAt: createdAt(id),
		Repos: slices.SortedFunc(maps.Keys(w.roots[id]), graspsync.RepoRef.Compare),
	}
}

// restart kills the process. The saved state is from its end or from an earlier time. The next
// process may have another configuration.
func (w *world) restart() {
	in := Restore{Relays: w.kept}
	if w.src.n(2) == 0 {
		in.Relays = allKept(w.plan)
	}
	w.now = w.now.Add(time.Duration(w.src.n(300)) * time.Second)
	w.note(clock(w.now) + " restart")
	w.restarts++
	cfg := w.plan.cfg
	w.plan = newPlan(cfg)
	w.lastEpoch, w.lastBatch, w.lastLive = 0, 0, 0
	clear(w.refusals)
	clear(w.conns)
	unchecked := w.unchecked
	w.unchecked = true // the new plan has no wanted repositories yet
	fewer := w.src.n(5) == 0
	if fewer {
		w.plan.cfg.MaxRelays = w.src.n(4)
	}
	w.step(in)
	w.plan.cfg.MaxRelays = cfg.MaxRelays
	// Unwanted repositories are forgotten.
	maps.DeleteFunc(w.repos, func(_ graspsync.RepoRef, rc RepoChange) bool { return rc.Level == LevelNone })
	var snap Snapshot
	for _, ref := range slices.SortedFunc(maps.Keys(w.repos), graspsync.RepoRef.Compare) {
		snap.Repos = append(snap.Repos, w.repos[ref])
	}
	for _, of := range slices.SortedFunc(maps.Keys(w.below), filters.Descendant.Compare) {
		maps.DeleteFunc(w.below[of], func(ref graspsync.RepoRef, _ bool) bool {
			_, known := w.repos[ref]
			return !known
		})
		if len(w.below[of]) == 0 {
			delete(w.below, of)
			continue
		}
		snap.Descendants = append(snap.Descendants, w.descendantChange(of))
	}
	for _, id := range slices.SortedFunc(maps.Keys(w.roots), graspsync.EventID.Compare) {
		maps.DeleteFunc(w.roots[id], func(ref graspsync.RepoRef, _ bool) bool {
			_, known := w.repos[ref]
			return !known
		})
		if len(w.roots[id]) == 0 {
			delete(w.roots, id)
			continue
		}
		snap.Roots = append(snap.Roots, w.rootChange(id))
	}
	boot := slices.SortedFunc(maps.Keys(w.bootstrap), graspsync.RelayURL.Compare)
	clear(w.bootstrap)
	w.step(snap)
	for _, u := range boot {
		w.step(Bootstrap{Relay: u})
	}
	w.unchecked = unchecked
	w.kept = allKept(w.plan)
}

// checkBackground checks the counts of ids to fetch.
func (w *world) checkBackground() {
	for _, r := range w.plan.relays {
		if r.byID.known != nil {
			w.must(len(r.byID.known) <= w.plan.cfg.MaxNamed, "too many named")
			n := len(r.byID.queue)
			for _, b := range r.pending.all() {
				n += len(b.ids)
			}
			w.must(n == len(r.byID.known) && n > 0, "named twice, or never asked for")
		}
	}
}

// checkOther checks that items without a live subscription are followed by kinds or polled, and
// that no polled time decreases.
func (w *world) checkOther(r *relayState, wanted, covered map[string]bool) {
	if covered["kinds"] {
		return
	}
	for _, g := range r.live.poll.groups {
		maps.Copy(covered, keysOf(w.plan.repos.itemFilters(g.items)...))
	}
	for key := range wanted {
		w.must(covered[key], "neither live nor polled: "+key)
	}
}

// checkRepos compares the status of each repository with the state of its items.
func (w *world) checkRepos() {
	if w.steps++; w.steps%4 > 0 {
		return
	}
	p := w.plan
	var refs []graspsync.RepoRef
	for ref, rc := range w.repos {
		got, ok := p.RepoStatus(ref)
		w.must(ok == (rc.Level != LevelNone), "a repository that is wanted has a status")
		if !ok {
			continue
		}
		refs = append(refs, ref)
		roots := p.repos.byRef[ref].threads[mainTier]
		belongs := func(it Item) bool {
			in := p.repos.infos[it]
			switch in.kind {
			case itemRepo:
				return rc.Level == LevelFull && in.repo.ref == ref
			case itemRoot:
				return rc.Level == LevelFull && has(roots, it)
			}
			return false
		}
		want := RepoStatus{Ref: ref, Level: rc.Level, Roots: len(roots)}
		for _, u := range listing(rc) {
			r := p.relays[u]
			if r == nil || slices.ContainsFunc(want.Relays, func(s RelayItems) bool { return s.Relay == u }) {
				continue
			}
			s := RelayItems{Relay: u, Phase: r.phase()}
			s.Live = r.dial.connected && r.live.unfollowed+r.live.tooLarge+len(r.live.missing)+len(r.live.lost) == 0
			for it, st := range r.history.items {
				if !belongs(it) {
					continue
				}
				s.Wanted++
				switch st {
				case inFlight:
					s.InFlight++
				case confirmed:
					s.Confirmed++
				}
			}
			want.Relays = append(want.Relays, s)
			want.Wanted += s.Wanted
			want.InFlight += s.InFlight
			want.Confirmed += s.Confirmed
		}
		if !reflect.DeepEqual(want, got) {
			require.Equal(w.t, want, got)
		}
	}
	require.ElementsMatch(w.t, refs, p.Refs())
}

// worldClosing is the history of refused subscriptions of a relay.
type worldClosing struct {
	stands  bool // the closed subscription was accepted before
	retryAt time.Time
	refused int
	atOnce  bool // the subscription is opened again immediately
}

func (w *world) closing(in Input) (c worldClosing) {
	closed, ok := in.(LiveClosed)
	if !ok {
		return c
	}
	r, conn := w.plan.relays[closed.Relay], w.conns[closed.Relay]
	if r == nil || conn == nil || !conn.connected || conn.epoch != closed.Epoch {
		return c
	}
	sub := r.live.subs[closed.Live]
	rests := closed.Why == wire.RefusalRestricted && closed.Stood < 30*time.Second && closed.Live != r.live.kinds
	atOnce := rests || closed.Why == wire.RefusalOverflow && sub != nil && w.now.Sub(sub.since) >= 30*time.Second
	return worldClosing{sub != nil, r.live.retryAt, r.live.refusals, atOnce}
}

// checkClosed checks when a closed subscription is opened again: after a wait that doubles up to an
// hour. The wait starts from the minimum after an accepted subscription, and an hour after the last
// refusal.
func (w *world) checkClosed(in Input, before worldClosing) {
	if !before.stands {
		return
	}
	r := w.plan.relays[in.(LiveClosed).Relay]
	if before.atOnce || w.now.Before(before.retryAt) {
		w.must(r.live.retryAt.Equal(before.retryAt) && r.live.refusals == before.refused, "one refusal counts once")
		return
	}
	n := before.refused
	if in.(LiveClosed).Stood > 0 || w.now.Sub(before.retryAt) > time.Hour {
		n = 0
	}
	least := min(30*time.Second<<n, time.Hour)
	wait := r.live.retryAt.Sub(w.now)
	w.must(wait >= least && wait <= least+least/10, fmt.Sprintf("closed for the %d. time, and opened again after %v", n+1, wait))
	w.must(r.live.refusals == n+1, "refusals in a row")
}

// deletions records the authors whose deletions were requested from a relay.
func (w *world) deletions(u graspsync.RelayURL, q Query) {
	if w.deleted[u] == nil {
		w.deleted[u] = make(map[string]bool)
	}
	for _, a := range q.Filter.Authors {
		w.deleted[u][a] = true
	}
}
