package museum

import "fmt"

// exhibit is a bug that somebody had.
type exhibit struct {
	name string // what went wrong
	file string
	old  string   // this, once in the file,
	bug  string   // is replaced by this
	pkg  string   // whose tests catch it
	run  string   // those tests
	args []string // of theirs
	says string   // what they must say, so that it is not caught for another reason
}

// oneSeed has the simulation run one seed, in a short test.
func oneSeed(seed int) []string { return []string{fmt.Sprint("-sim.from=", seed), "-sim.seeds=5"} }

var exhibits = []exhibit{
	// Paging.
	{
		"until exclusive: the rest of the second is lost", "filters/walk.go",
		"w.until = p.edge\n", "w.until = p.edge - 1\n", "./filters", "Walk", nil, "",
	},
	{
		"a short page ends the walk", "filters/walk.go",
		"case p.size == 0:", "case p.size < w.limit:", "./filters", "Walk", nil, "",
	},
	{
		"the oldest event counts, and not the last", "filters/walk.go",
		"if p.size > 1 && t == p.edge ||", "if p.size > 1 && t >= p.edge ||", "./filters", "Walk", nil, "",
	},
	{
		"live subscriptions ask for the past", "filters/builders.go",
		"f.LimitZero = true", "f.Limit = 1", "./filters", "Live", nil, "",
	},
	{
		"an identifier is cut at a colon", "filters/ids.go",
		"owner, identifier, ok := strings.Cut(rest, \":\")", "owner, identifier, ok := strings.Cut(rest, \":\")\n\tidentifier, _, _ = strings.Cut(identifier, \":\")", "./filters", "RepoRef|Address", nil, "",
	},

	// Time.
	{
		"since is the time of the reconnect", "sync/internal/plan/cycle.go",
		"p.missedSince(r, r.aliveAt)", "p.missedSince(r, now)", "./sync", "TrapT7", nil, "",
	},
	{
		"no overlap", "sync/internal/plan/live.go",
		"t.Add(-p.cfg.Overlap)", "t", "./sync/internal/plan", ".", nil, "",
	},
	{
		"dials without a bound", "sync/internal/plan/dials.go",
		"return p.young.all < p.cfg.MaxDials && p.dialing < p.cfg.MaxDials+p.silentMost()", "return true", "./sync/internal/plan", ".", nil, "",
	},
	{
		"the backoff does not grow", "health/core.go",
		"d *= 2", "d += 0", "./health", ".", nil, "",
	},
	{
		"the backoff has no end", "health/core.go",
		"c.lengthen(min(d, c.MaxBackoff), jitter)", "c.lengthen(d*2, jitter)", "./health", ".", nil, "",
	},
	{
		"a flapping relay starts over at each connection", "health/core.go",
		"	if r.Failures > 0 {\n		r.RecoveredAt = now\n	}", "	if r.Failures > 0 {\n		r.RecoveredAt = now\n	}\n	r.Failures = 0", "./health", ".", nil, "",
	},
	{
		"a dead relay is tried as ever", "health/core.go",
		"	wait := c.backoff(r.Failures, jitter)\n	if c.dead(r) {", "	wait := c.backoff(r.Failures, jitter)\n	if false {", "./health", ".", nil, "",
	},

	// Who and what.
	{
		"ids are not compared with the event", "sync/ingest.go",
		"if !d.event.CheckID() {", "if false {", "./sync", "OddRelays.*/forged|ForgedCopy", nil, "",
	},
	{
		"an id is known before it was verified", "sync/ingest.go",
		"if !d.event.CheckID() {", "g.known.add(id)\n\tif !d.event.CheckID() {", "./sync", "OddRelays.*/forged|ForgedCopy", nil, "",
	},
	{
		"only the first tag counts", "nip34/tags.go",
		"if list = append(list, v); len(list) == most {", "if list = append(list, v); len(list) > 0 {", "./nip34", ".", nil, "",
	},
	{
		"the highest id wins", "nip34/version.go",
		"a.ID.Compare(b.ID) < 0", "a.ID.Compare(b.ID) > 0", "./nip34", ".", nil, "",
	},
	{
		"maintainers are not followed further", "nip34/maintainers.go",
		"queue = append(queue, m)", "_ = queue", "./nip34", ".", nil, "",
	},
	{
		"servers on one host are taken for each other", "nip34/identity.go",
		"return b.authority == a && slices.Equal(b.path, path)", "return b.authority.Host == a.Host && slices.Equal(b.path, path)", "./nip34", ".", nil, "",
	},
	{
		"the path of a relay is ignored", "nip34/identity.go",
		"return b.authority == a && slices.Equal(b.path, path)", "return b.authority == a", "./nip34", ".", nil, "",
	},

	// Where we must not go.
	{
		"addresses are judged by their name only", "egress/judge.go",
		"return d.judge(to, host)\n}\n\nfunc (d *Dialer) hostAddrs", "_, _ = to, host\n\treturn nil\n}\n\nfunc (d *Dialer) hostAddrs", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own", nil, "",
	},
	{
		"addresses within addresses are not looked at", "egress/judge.go",
		"if inner, ok := embedded(addr); ok {", "if inner, ok := embedded(addr); ok && false {", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own", nil, "",
	},
	{
		"our own host is as good as any", "egress/judge.go",
		"case ofHost:", "case false:", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own", nil, "",
	},

	// Strangers' bytes.
	{
		"bounds may decrease", "sync/internal/negentropy/message.go",
		"return bound{}, violation(\"bounds don't increase\")", "_ = violation", "./sync/internal/negentropy", "Test", nil, "",
	},

	// What strangers, our own store and our own bounds do. The simulation says it by what is
	// lost, what is here and should not be, and by the figures that it takes at its end.
	{
		"what the store fails for is tried every second", "sync/retries.go",
		"j.due = now.Add(backoff(j.tries, retryFirst, retryMost))", "j.due = now.Add(retryFirst)\n	r.wait, r.next = 0, time.Time{}\n	j.attempts = 0", "./sync", "TestSimulation$",
		oneSeed(11), "is not less than \"150\"",
	},
	{
		"one deletion has all sent anew that is followed", "sync/internal/plan/relay.go",
		"r.live.idle++", "r.live.stale = true", "./sync", "TestSimulation$",
		oneSeed(6), "bytes sent by a deletion",
	},
	{
		"a deletion of many ids waits for sixteen", "sync/dependency.go",
		"const maxDependencies = 10_000", "const maxDependencies = 16", "./sync", "TestSimulation$",
		oneSeed(21), "foreign",
	},
	{
		"a deletion of many ids is looked up for a hundred", "sync/grasp.go",
		"found, err := view.Events(ctx, ids) // all at once", "ids = ids[:min(len(ids), 100)]\n	found, err := view.Events(ctx, ids) // all at once", "./sync", "TestSimulation$",
		oneSeed(21), "foreign",
	},
	{
		"nothing begins while our store is not sure that it gave all", "sync/loop.go",
		"if err != nil {\n			m.post(scanned{err: err})\n			return\n		}\n		if missed", "if err == nil {\n			err = missed\n		}\n		if err != nil {\n			m.post(scanned{err: err})\n			return\n		}\n		if missed", "./sync", "TestSimulation$",
		oneSeed(8), "lost",
	},
	{
		"a relay pays for what others put on it", "sync/writer.go",
		"g.unwanted(j, v.Reason)\n	n := note{", "g.unwanted(j, v.Reason)\n	if j.from != nil {\n		j.from.spend(j.size)\n	}\n	n := note{", "./sync", "TestSimulation$",
		oneSeed(1), "is honest, and was cut as hostile",
	},
	{
		"that we do not dial a relay is its failure", "sync/loop.go",
		"l.m.health.Closed(c.url)\n	l.m.remember.health(c.url)\n	c.stats.failed(clean(err.Error()))\n	l.m.counters.drop(\"not_dialed\"", "l.m.health.Failed(c.url, err)\n	l.m.remember.health(c.url)\n	c.stats.failed(clean(err.Error()))\n	l.m.counters.drop(\"not_dialed\"", "./sync", "TestSimulation$",
		oneSeed(6), "is not greater than \"0.8\"",
	},
	{
		"each id of a deletion is a question to the store", "sync/grasp.go",
		"target, here := found[id]\n		if here && target.PubKey", "_, _ = view.Events(ctx, []filters.EventID{id})\n		target, here := found[id]\n		if here && target.PubKey", "./sync", "TestSimulation$",
		oneSeed(1), "is not less than \"20\"",
	},
	{
		"whoever says so is a maintainer", "sync/grasp.go",
		"return view.Maintained(state.Identifier, state.Owner)", "return true", "./sync", "TestSimulation$",
		oneSeed(6), "foreign",
	},
	{
		"the oldest id goes, whoever brought most", "sync/rejected.go",
		"last := r.owners.Next().Item\n", "last := entryOf(r.order.Front())\n", "./sync", "TestWaitingEventsOfOneRelayDriveOutNoOthers",
		nil, "at once; dropped",
	},
	{
		"who stores something waits until everything was gathered", "sync/feed.go",
		"for some() {\n	}", "x.mu.Lock()\n	defer x.mu.Unlock()\n	for k, v := range m {\n		visit(k, v)\n	}\n	_ = some", "./sync", "TestStoredDoesNotWaitForEverything",
		nil, "stored while everything was gathered",
	},
	{
		"one event takes with it what was published beside it", "adapter/remote/store.go",
		"if len(which) == 1 || len(lost) == 0 ||", "if len(which) >= 1 || len(lost) == 0 ||", "./adapter/remote", "TestEventThatCutsTheConnectionIsAlone",
		nil, "",
	},
	{
		"a buffer grows beyond what is reserved", "sync/wstransport/read.go",
		"larger := make([]byte, len(buf), max(size, len(buf)+1))\n	copy(larger, buf)\n	return larger", "return append(buf, make([]byte, max(size-len(buf), 1))...)[:len(buf)]", "./sync/wstransport", "TestPromiseP20_SmallUntilReserved",
		nil, "",
	},
	{
		"what waits can not be deleted", "adapter/purgatory/policy.go",
		"return p.inner.Judge(ctx, ev, src, &heldView{waitingView{view, where}})", "return p.inner.Judge(ctx, ev, src, view)", "./adapter/grasp", "TestDeletionOfWhatWaits",
		nil, "",
	},
	{
		"a deleted repository is served", "purgatory/departed.go",
		"if err = p.departures.Depart(waiting, ref); err == nil {", "if err = waiting.Err(); err == nil {", "./purgatory", "TestDepartedRepositories",
		nil, "",
	},
	{
		"a key of today counts for as much as one of last year", "sync/internal/plan/owners.go",
		"			weight = a.weight\n", "			weight, _ = ages[0].weight, a\n", "./sync/internal/plan", "TestPromiseP37_NewRelayBehindDeadOnes",
		nil, "3000_a_key_each,_old",
	},
	{
		"git outlives the process it works for", "purgatory/gitfetch/memory_linux.go",
		"attr.Pdeathsig = syscall.SIGKILL", "attr.Pdeathsig = 0", "./purgatory/gitfetch", "TestGitEndsWithUs",
		nil, "",
	},
	{
		"refs of pull requests keep an announcement", "purgatory/departed.go",
		"if err != nil || refs.hasState() || p.departures != nil {\n		return refs.hasState(), err", "if err != nil || len(refs.At) > 0 {\n		return len(refs.At) > 0, err", "./purgatory", "TestExpiresDespiteRefsOfPullRequests",
		nil, "",
	},
	{
		"old faults of others can not be pushed", "purgatory/gitserve/child.go",
		"range barerepo.OldFaults() {", "range barerepo.OldFaults()[:0] {", "./purgatory/gitserve", "TestPromiseP31_OldFaultsArePushed",
		nil, "",
	},
	{
		"what a push deletes is in no log", "purgatory/gitserve/taking.go",
		"if len(removed) > 0 {", "if len(removed) > 1<<20 {", "./purgatory/gitserve", "TestDeletionByAPushIsLogged",
		nil, "",
	},
}
