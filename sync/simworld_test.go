package sync_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

const (
	simRelays  = 20
	simHostile = 6
	simRepos   = 12
	simAnchors = 3 // repositories that our relay knows at the start, and that never move
	simKeys    = 8
	simActs    = 150 // events before the start, and while things go wrong

	simForeignRepos = 400
	simFakesEvery   = 10 // seeds
	simFakeLists    = 2  // of 15 relays each
	simCrowdedConns = 26
	simBadEvents    = 4         // more than a relay may send without being cut
	simAllowance    = 256 << 10 // of each relay; what others put on an honest one is more
	simRefill       = 2 << 10   // in a minute
)

// world is the content of a simulation and the script of its events. It depends only on the seed.
type world struct {
	rng    *rand.Rand
	start  time.Time
	net    *relaytest.Network
	relays []*simRelay
	keys   []*simKey
	repos  []*simRepo
	model  simModel

	script  []simStep
	clock   time.Duration // of the script, since start
	end     time.Duration // when the faults are lifted
	about   []string      // descriptions for a failed test
	crowded bool          // strangers list more relays than we may have connections to
	// ahead is the current error of our clock, wasAhead its error before the last start.
	ahead, wasAhead time.Duration
}

type simRelay struct {
	*relaytest.Relay
	base    relaytest.Behavior
	hostile bool
	faults  map[string]fault
	busy    time.Duration // end of its current fault
	dead    bool          // was down so long that it counts as dead
	forges  bool          // sometimes sends proofs of hostility
}

// simKey is an author, whose clock may be wrong.
type simKey struct {
	*relaytest.Key
	off time.Duration
}

type simRepo struct {
	owner       *simKey
	name        string
	relays      []*simRelay
	ours        bool
	maintainers []*relaytest.Key
	announced   nostr.Timestamp
	announcers  []*simRelay // have some version of the announcement
	roots       []*nostr.Event
	state       *nostr.Event // the owner's latest
	events      []*nostr.Event
	burst       int // most events in one second
}

// simStep is one step of the script.
type simStep struct {
	at   time.Duration
	what string
	do   func(*simRun)
	ours bool // affects only our server
	// clock means that we restart with a clock that is wrong by ahead until the next such step.
	clock bool
	ahead time.Duration
}

func newWorld(seed uint64, start time.Time, wanted func(trait) bool) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), start: start, net: relaytest.NewNetwork(), model: newSimModel()}
	for i := range simKeys {
		k := &simKey{Key: relaytest.NewCheapKey(fmt.Sprint(seed, "/", i))}
		switch w.rng.IntN(4) {
		case 0:
			k.off = time.Duration(w.rng.IntN(14)) * time.Minute
		case 1:
			k.off = -time.Duration(w.rng.IntN(72*60)) * time.Minute
		}
		w.keys = append(w.keys, k)
	}
	w.populate(wanted)
	for i := range simRepos {
		w.addRepo(i)
	}
	if simForeign {
		w.foreignCrowd()
	}
	if simFakes && seed%simFakesEvery == 0 {
		w.fakeRelays()
	}
	if simBadCopies {
		w.badCopies()
	}
	if simPartly && w.rng.IntN(3) == 0 {
		w.stepOurs("store is not sure of what it has", func(run *simRun) { run.store.partly.Store(true) })
	}
	for range simActs {
		w.act()
	}
	for range simActs {
		w.pass(time.Duration(w.rng.ExpFloat64() * float64(2*time.Minute)))
		if w.rng.IntN(50) == 0 {
			w.pass(time.Duration(w.rng.IntN(300)) * time.Minute)
		}
		w.disturb()
		w.act()
		if simSickStore && w.rng.IntN(50) == 0 {
			w.sicken()
		}
		if w.rng.IntN(40) == 0 {
			w.restart()
		}
	}
	if simLongDown && w.rng.IntN(4) == 0 {
		w.dayOff(longDown).dead = true
	}
	if simUndialed && w.rng.IntN(4) == 0 {
		w.dayOff(undialed)
	}
	w.end = w.clock
	if w.ahead != 0 {
		w.ahead = 0
		w.again("the clock is right again", 0, false)
	}
	for i := range w.script { // all faults end by then
		w.script[i].at = min(w.script[i].at, w.end)
	}
	slices.SortStableFunc(w.script, func(a, b simStep) int { return cmp.Compare(a.at, b.at) })
	return w
}

// populate adds the relays, honest and hostile.
func (w *world) populate(wanted func(trait) bool) {
	cages := zoo(temper{pace: 3 * time.Second, bulk: 60})
	names := slices.Sorted(maps.Keys(cages))
	w.rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var traits []trait
	for _, tr := range simTraits {
		if wanted(tr) {
			traits = append(traits, tr)
		}
	}
	for i := range simRelays {
		r := &simRelay{hostile: i < simHostile, faults: make(map[string]fault)}
		about := "hostile"
		if r.hostile {
			r.base = cages[names[i]]
			about += ": " + names[i]
		} else {
			r.base, about = w.honest(traits, wanted)
		}
		r.Relay = w.net.Add(fmt.Sprintf("wss://r%d.example", i), r.base)
		w.relays = append(w.relays, r)
		w.about = append(w.about, fmt.Sprint(r.URL(), " is ", about))
	}
}

// honest returns an honest relay with up to two traits, possibly of a known program.
func (w *world) honest(traits []trait, wanted func(trait) bool) (relaytest.Behavior, string) {
	modes := []relaytest.NegMode{relaytest.NegOn, relaytest.NegOn, relaytest.NegNotice, relaytest.NegErr, relaytest.NegError, relaytest.NegClosed, relaytest.NegSilent}
	b := relaytest.Behavior{
		Latency:    time.Duration(w.rng.IntN(300)) * time.Millisecond,
		Negentropy: modes[w.rng.IntN(len(modes))],
	}
	about := fmt.Sprint("honest: ", b.Latency)
	if m := simModels[w.rng.IntN(len(simModels))]; w.rng.IntN(2) == 0 && wanted(m) {
		m.set(w.rng, &b)
		about += ", " + m.name
	}
	about += fmt.Sprint(", NIP-77 ", b.Negentropy)
	for range w.rng.IntN(3) {
		if len(traits) > 0 {
			tr := traits[w.rng.IntN(len(traits))]
			tr.set(w.rng, &b)
			about += ", " + tr.name
		}
	}
	return b, about
}

func (w *world) pass(d time.Duration) { w.clock += d }

// now returns the time of the script by an author's clock.
func (w *world) now(k *simKey) nostr.Timestamp {
	return nostr.Timestamp(w.start.Add(w.clock + k.off).Unix())
}

// then returns a time up to ten minutes before now.
func (w *world) then(k *simKey) nostr.Timestamp { return w.now(k) - nostr.Timestamp(w.rng.IntN(600)) }

func (w *world) step(what string, do func(*simRun)) {
	w.script = append(w.script, simStep{at: w.clock, what: what, do: do})
}

func (w *world) stepOurs(what string, do func(*simRun)) {
	w.script = append(w.script, simStep{at: w.clock, what: what, do: do, ours: true})
}

// pick returns n relays, at least one of them honest.
func (w *world) pick(n int) []*simRelay {
	for {
		out := slices.Clone(w.relays)
		w.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		if out = out[:n]; slices.ContainsFunc(out, func(r *simRelay) bool { return !r.hostile }) {
			return out
		}
	}
}

func firstHonest(relays []*simRelay) *simRelay {
	return relays[slices.IndexFunc(relays, func(r *simRelay) bool { return !r.hostile })]
}

// put publishes an event on relays.
func (w *world) put(ev *nostr.Event, relays ...*simRelay) {
	what := "event " + ev.ID
	for _, r := range relays {
		what += " " + r.URL().String()
	}
	w.step(what, func(*simRun) {
		for _, r := range relays {
			r.Publish(ev)
		}
	})
}

// publish publishes an event on some relays of its repository, at least one of them honest.
func (w *world) publish(r *simRepo, ev *nostr.Event) {
	to := []*simRelay{firstHonest(r.relays)}
	if w.rng.IntN(2) == 0 { // not always to the same
		to = nil
		for _, i := range w.rng.Perm(len(r.relays)) {
			if len(to) == 0 || w.rng.IntN(2) == 0 {
				to = append(to, r.relays[i])
			}
		}
		if h := firstHonest(r.relays); !slices.ContainsFunc(to, func(r *simRelay) bool { return !r.hostile }) {
			to = append(to, h)
		}
	}
	r.events = append(r.events, ev)
	if r.ours {
		w.model.publish(ev)
		w.note(ev, to)
	}
	w.put(ev, to...)
}

// note records the maximum delay of an event. Events dated before the start of a quick reconnect,
// events dated too far ahead, and events only on dead relays arrive later than others.
func (w *world) note(ev *nostr.Event, to []*simRelay) {
	ahead := ev.CreatedAt.Time().Sub(w.start.Add(w.clock))
	if ahead < -12*time.Minute || ahead > 14*time.Minute {
		w.model.late[ev.ID] = true
	}
	for _, r := range to {
		if !r.hostile {
			w.model.holders[ev.ID] = append(w.model.holders[ev.ID], r)
		}
	}
}

func (w *world) addRepo(i int) {
	r := &simRepo{
		owner: w.keys[w.rng.IntN(len(w.keys))], name: fmt.Sprintf("repo:%d", i),
		relays: w.pick(1 + w.rng.IntN(5)), ours: i < simAnchors || w.rng.IntN(5) > 0,
	}
	w.repos = append(w.repos, r)
	r.announced = w.then(r.owner) - 3600
	w.announce(r)
}

// announce publishes a version of a repository's announcement where servers that know an earlier
// version, or an anchor, find it.
func (w *world) announce(r *simRepo) {
	hosts := []string{us}
	if !r.ours {
		hosts[0] = "elsewhere.example"
	}
	for _, rel := range r.relays {
		hosts = append(hosts, rel.URL().String())
	}
	clones := make([]string, len(hosts))
	urls := make([]string, len(hosts))
	for i, h := range hosts {
		urls[i] = h
		if i == 0 {
			urls[i] = "wss://" + h
		}
		clones[i] = r.owner.CloneURL(urls[i], r.name)
	}
	if r.announced++; w.clock > 0 {
		r.announced = max(r.announced, w.now(r.owner))
	}
	ev := r.owner.Announcement(r.announced, r.name, urls, clones, r.maintainers...)
	if r.ours {
		w.model.publish(ev)
		w.model.maintain(r)
	}
	anchor := w.repos[min(len(w.repos)-1, w.rng.IntN(simAnchors))]
	for _, rel := range append([]*simRelay{firstHonest(anchor.relays)}, r.relays...) {
		if !slices.Contains(r.announcers, rel) && (!rel.hostile || w.rng.IntN(2) == 0) {
			r.announcers = append(r.announcers, rel)
		}
	}
	w.note(ev, r.announcers)
	if w.clock == 0 && len(w.repos) <= simAnchors {
		w.stepOurs("here "+ev.ID, func(run *simRun) { run.seed = append(run.seed, ev) })
	}
	w.put(ev, slices.Clone(r.announcers)...)
}

// act publishes a random event about a repository.
func (w *world) act() {
	r := w.repos[w.rng.IntN(len(w.repos))]
	author := w.keys[w.rng.IntN(len(w.keys))]
	text := fmt.Sprint(w.rng.Uint64())
	switch {
	case simBulk && len(r.roots) > 0 && w.rng.IntN(60) == 0:
		w.bulkDeletion(r, author, text)
		return
	case simDirect && len(r.roots) > 0 && r.ours && w.rng.IntN(15) == 0:
		w.direct(r, author, text)
		return
	}
	switch k := w.rng.IntN(100); {
	case k < 25 || len(r.roots) == 0:
		issue := author.Issue(w.then(author), r.owner.Ref(r.name), text)
		r.roots = append(r.roots, issue)
		w.publish(r, issue)
	case k < 65:
		w.publish(r, author.Comment(w.then(author), r.roots[w.rng.IntN(len(r.roots))], text))
	case k < 73:
		comment := author.Comment(w.then(author), r.roots[w.rng.IntN(len(r.roots))], text)
		w.publish(r, comment)
		w.publish(r, author.Deletion(comment.CreatedAt+1, comment))
	case k < 75:
		root := author.Patch(w.then(author), r.owner.Ref(r.name), text) // nobody comments on it
		w.publish(r, root)
		w.publish(r, author.Deletion(root.CreatedAt+1, root))
	case k < 85:
		r.state = r.owner.State(w.then(r.owner), r.name, map[string]string{"refs/heads/main": fmt.Sprintf("%040x", w.rng.Uint64())}, "refs/heads/main")
		w.publish(r, r.state)
	case k < 86 && r.state != nil:
		w.publish(r, r.owner.Deletion(r.state.CreatedAt, r.state))
	case k < 91:
		w.publish(r, author.State(w.then(author), r.name, map[string]string{"refs/heads/x": fmt.Sprintf("%040x", w.rng.Uint64())}, ""))
	case k < 94 && slices.Index(w.repos, r) >= simAnchors:
		w.changeMaintainers(r)
	case k < 97 && slices.Index(w.repos, r) >= simAnchors && w.clock > 0:
		w.move(r)
	case k < 98 && simFuture:
		w.publish(r, author.Comment(nostr.Timestamp(w.start.Add(w.clock).Unix())+1200+nostr.Timestamp(w.rng.IntN(2400)), r.roots[0], text))
	case k < 99 && simSecond:
		when := w.then(author)
		r.burst = max(r.burst, burst(r.relays))
		for i := range burst(r.relays) {
			w.publish(r, author.Comment(when, r.roots[0], fmt.Sprint(text, i)))
		}
	default:
		w.refused(r, author, text)
	}
}

// bulkDeletion deletes some comments, among very many unknown events, before or after the comments
// are published.
func (w *world) bulkDeletion(r *simRepo, author *simKey, text string) {
	most := []int{14, 40, 130, 400}[w.rng.IntN(4)]
	when := w.then(author)
	var targets []*nostr.Event
	tags := nostr.Tags{{"k", "1111"}}
	for i := range 1 + w.rng.IntN(4) {
		targets = append(targets, author.Comment(when, r.roots[w.rng.IntN(len(r.roots))], fmt.Sprint(text, i)))
		tags = append(tags, nostr.Tag{"e", targets[i].ID})
	}
	for len(tags) < most {
		tags = append(tags, nostr.Tag{"e", fmt.Sprintf("%016x%048x", w.rng.Uint64(), w.rng.Uint64())})
	}
	w.rng.Shuffle(len(tags), func(i, j int) { tags[i], tags[j] = tags[j], tags[i] })
	deletion := author.Event(when+1, graspsync.KindDeletion, "", tags...)
	first := w.rng.IntN(2) == 0
	if first {
		w.publish(r, deletion)
	}
	for _, ev := range targets {
		w.publish(r, ev)
	}
	if !first {
		w.publish(r, deletion)
	}
}

// direct publishes an event on our own relay only.
func (w *world) direct(r *simRepo, author *simKey, text string) {
	events := []*nostr.Event{author.Comment(w.then(author), r.roots[w.rng.IntN(len(r.roots))], text)}
	switch w.rng.IntN(4) {
	case 0:
		events[0] = author.Issue(w.then(author), r.owner.Ref(r.name), text)
	case 1: // published elsewhere, deleted here
		w.publish(r, events[0])
		events[0] = author.Deletion(events[0].CreatedAt+1, events[0])
	}
	for _, ev := range events {
		w.model.publish(ev)
	}
	w.stepOurs("direct "+events[0].ID, func(run *simRun) {
		direct := rig{t: run.t, store: run.store.Store}
		if run.rig != nil {
			direct.manager = run.rig.manager
		}
		direct.save(events...)
	})
}

// sicken makes our store fail for some events for a while.
func (w *world) sicken() {
	oneOf := 1 + w.rng.IntN(3)
	w.stepOurs(fmt.Sprint("store fails for one in ", oneOf), func(run *simRun) { run.store.setSick(oneOf) })
	w.script = append(w.script, simStep{
		at: w.clock + time.Duration(w.rng.Int64N(int64(3*time.Hour))), what: "store works", ours: true,
		do: func(run *simRun) { run.store.setSick(0) },
	})
}

// foreignCrowd fills an honest relay with repositories of other servers.
func (w *world) foreignCrowd() {
	to := firstHonest(w.pick(simRelays))
	stranger := relaytest.NewCheapKey(fmt.Sprint("stranger ", w.rng.Uint64()))
	var events []*nostr.Event
	for i := range simForeignRepos {
		when := nostr.Timestamp(w.start.Unix()) - nostr.Timestamp(w.rng.IntN(30*86400))
		name := fmt.Sprint("foreign", i)
		events = append(events, stranger.Hosted(when, name, "elsewhere.example", fmt.Sprintf("other%d.example", i%7)),
			stranger.State(when, name, map[string]string{"refs/heads/main": fmt.Sprintf("%040x", w.rng.Uint64())}, "refs/heads/main"))
	}
	w.about = append(w.about, fmt.Sprint(to.URL(), " is full of repositories of others"))
	w.step(fmt.Sprint("foreign repositories on ", to.URL()), func(*simRun) { to.Publish(events...) })
}

// badCopies adds events with wrong signatures to an honest relay, as if it did not check imports.
func (w *world) badCopies() {
	r := w.repos[w.rng.IntN(simAnchors)]
	to := firstHonest(r.relays)
	to.forges = true
	var events []*nostr.Event
	for range simBadEvents {
		ev := r.owner.Issue(w.then(r.owner), r.owner.Ref(r.name), fmt.Sprint(w.rng.Uint64()))
		ev.Sig = strings.Repeat("ab", 64)
		events = append(events, ev)
	}
	w.about = append(w.about, fmt.Sprint(to.URL(), " has wrong signatures"))
	w.step(fmt.Sprint("wrong signatures on ", to.URL()), func(*simRun) { to.Publish(events...) })
}

// fakeRelays publishes strangers' repositories on our server, each with relays that answer and have
// no events.
func (w *world) fakeRelays() {
	w.crowded = true
	for i := range simFakeLists {
		stranger := relaytest.NewCheapKey(fmt.Sprint("lister ", w.rng.Uint64()))
		hosts := []string{us}
		for j := range 15 {
			hosts = append(hosts, fmt.Sprintf("fake%d-%d.example", i, j))
			w.net.Add("wss://"+hosts[len(hosts)-1], relaytest.Behavior{Latency: 50 * time.Millisecond})
		}
		ev := stranger.Hosted(nostr.Timestamp(w.start.Unix())-7200, fmt.Sprint("spam", i), hosts...)
		w.model.publish(ev)
		to := firstHonest(w.repos[w.rng.IntN(simAnchors)].relays)
		w.note(ev, []*simRelay{to})
		w.put(ev, to)
	}
}

// burst returns the maximum number of events of one second that can be fetched with the features of
// all relays. With REQ alone it is one less than a page.
func burst(relays []*simRelay) int {
	n := 30
	for _, r := range relays {
		if b := r.base; !r.hostile && (b.Cap > 0 || b.DefaultLimit > 0) && (b.Negentropy != relaytest.NegOn || b.NegMax > 0) {
			n = min(n, cmp.Or(b.Cap, b.DefaultLimit)-1) // no page has more than Cap events
		}
	}
	return n
}

// refused publishes events that must be rejected.
func (w *world) refused(r *simRepo, author *simKey, text string) {
	ref := r.owner.Ref(r.name).String()
	for _, ev := range []*nostr.Event{
		author.Event(w.then(author), graspsync.KindIssue, text, nostr.Tag{"a", ref}, nostr.Tag{"-"}),
		author.Event(w.then(author), 20_001, text, nostr.Tag{"a", ref}),
		author.Event(w.then(author), 1, text),
	} {
		w.put(ev, r.relays...)
	}
}

func (w *world) changeMaintainers(r *simRepo) {
	r.maintainers = nil
	for _, k := range w.keys {
		if k != r.owner && w.rng.IntN(4) == 0 {
			r.maintainers = append(r.maintainers, k.Key)
		}
	}
	w.announce(r)
}

// move moves a repository with all its events to other relays, from which all of them can be
// fetched.
func (w *world) move(r *simRepo) {
	for next := true; next; next = burst(r.relays) < r.burst {
		r.relays = w.pick(1 + w.rng.IntN(5))
	}
	w.announce(r)
	to := firstHonest(r.relays)
	for _, ev := range r.events {
		w.model.late[ev.ID] = true
		w.model.holders[ev.ID] = []*simRelay{to}
		w.put(ev, to)
	}
}

// trace returns the script in one line.
func (w *world) trace() string {
	h := sha256.New()
	for _, s := range w.script {
		fmt.Fprintln(h, s.at, s.what)
	}
	for _, id := range w.model.ids() {
		fmt.Fprintln(h, id)
	}
	return hex.EncodeToString(h.Sum(nil))
}
