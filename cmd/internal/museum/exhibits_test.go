package museum

import "fmt"

// exhibit is a known bug.
type exhibit struct {
	name string // effect of the bug
	file string
	old  string   // text that occurs once in the file
	bug  string   // replacement
	pkg  string   // package whose tests catch it
	run  string   // pattern of these tests
	args []string // arguments of these tests
	says string   // text in their output, so that another failure does not count
}

// oneSeed makes the simulation run five seeds from seed.
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
		"of many answers the oldest are followed", "sync/internal/index/threads.go",
		"if oldest == n {", "if true {", "./sync/internal/index", "TestBranchKeepsTheNewest", nil, "",
	},
	{
		"live subscriptions ask for the past", "filters/builders.go",
		"f.Limit, f.LimitZero = nil, nil, 0, true", "f.Limit, f.LimitZero = nil, nil, 1, false", "./filters", "Live", nil, "",
	},
	{
		"an identifier is cut at a colon", "address.go",
		"author, identifier, ok := strings.Cut(rest, \":\")", "author, identifier, ok := strings.Cut(rest, \":\")\n\tidentifier, _, _ = strings.Cut(identifier, \":\")", ".", "RepoRef|Address", nil, "",
	},

	// Time.
	{
		"since is the time of the reconnect", "sync/internal/plan/plan.go",
		"p.missedSince(r, r.dial.aliveAt)", "p.missedSince(r, p.now)", "./sync", "TrapT7", nil, "",
	},
	{
		"no overlap", "sync/internal/plan/catchup.go",
		"t.Add(-p.cfg.Overlap)", "t", "./sync/internal/plan", ".", nil, "",
	},
	{
		"dials without a bound", "sync/internal/plan/dialer.go",
		"return len(p.attempts) < p.cfg.MaxDials", "return true", "./sync/internal/plan", ".", nil, "",
	},
	{
		"the backoff does not grow", "internal/backoff/backoff.go",
		"d *= 2", "d += 0", "./health", ".", nil, "",
	},
	{
		"the backoff has no end", "internal/backoff/backoff.go",
		"return min(d, most)", "return d * 2", "./health", ".", nil, "",
	},
	{
		"a flapping relay starts over at each connection", "health/core.go",
		"	if r.Failures > 0 {\n		r.RecoveredAt = now\n	}", "	if r.Failures > 0 {\n		r.RecoveredAt = now\n	}\n	r.Failures = 0", "./health", ".", nil, "",
	},
	{
		"a dead relay is tried as ever", "internal/backoff/backoff.go",
		"	wait := c.Wait(n, jitter)\n	if c.Dead(r) {", "	wait := c.Wait(n, jitter)\n	if false {", "./health", ".", nil, "",
	},

	// Events and relays to ask for.
	{
		"relays that only a listed maintainer names are not asked", "sync/selfsubscriber.go",
		"		c.Relays = append(c.Relays, r.Relay)\n", "		if r.By == c.Ref.Owner {\n			c.Relays = append(c.Relays, r.Relay)\n		}\n", "./sync", "RelaysOfThose", nil, "",
	},
	{
		"that somebody is listed, or names another relay, is not noticed", "sync/internal/index/index.go",
		"	for name := range later.Names {\n		c.SetName(name)\n", "	for name := range later.Names {\n		_ = name\n", "./sync", "RelaysOfThose", nil, "",
	},
	{
		"who names most relays comes first", "nip34/targets.go",
		"*queue = append(*queue, authorRelays{t.author, t.rest[1:]})", "*queue = append([]authorRelays{{t.author, t.rest[1:]}}, *queue...)", "./nip34", "AuthorityScripts", nil, "",
	},
	{
		"ids are not compared with the event", "sync/ingest.go",
		"if !ev.CheckID() {", "if false {", "./sync", "OddRelays.*/forged|ForgedCopy", nil, "",
	},
	{
		"an id is known before it was verified", "sync/ingest.go",
		"if !ev.CheckID() {", "g.known.Add(ev.ID)\n\tif !ev.CheckID() {", "./sync", "OddRelays.*/forged|ForgedCopy", nil, "",
	},
	{
		"only the first tag counts", "nip34/tags.go",
		"if list = append(list, v); len(list) == most {", "if list = append(list, v); len(list) > 0 {", "./nip34", ".", nil, "",
	},
	{
		"the highest id wins", "eventkey.go",
		"k.ID.Compare(other.ID) < 0", "k.ID.Compare(other.ID) > 0", "./nip34", ".", nil, "",
	},
	{
		"maintainers are not followed further", "nip34/authority.go",
		"		a.members[r.key] = struct{}{}\n		queue = append(queue, r)", "		a.members[r.key] = struct{}{}", "./nip34", ".", nil, "",
	},
	{
		"servers on one host are taken for each other", "nip34/identity.go",
		"return b.authority == a && b.path == path", "return b.authority.Host == a.Host && b.path == path", "./nip34", ".", nil, "",
	},
	{
		"the path of a relay is ignored", "nip34/identity.go",
		"return b.authority == a && b.path == path", "return b.authority == a", "./nip34", ".", nil, "",
	},
	{
		"servers under paths of one host are taken for each other", "nip34/identity.go",
		`(b.path == "" || b.path == u.Path())`, `(b.path != "?" || b.path == u.Path())`, "./nip34", "TestIdentityIsRelay", nil, "",
	},

	// Forbidden addresses.
	{
		"addresses are judged by their name only", "egress/check.go",
		"return d.checkAddress(to, local)\n}\n\nfunc (d *Dialer) localAddrs", "_, _ = to, local\n\treturn nil\n}\n\nfunc (d *Dialer) localAddrs", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own", nil, "",
	},
	{
		"addresses within addresses are not looked at", "egress/check.go",
		"if inner, ok := embeddedIPv4(addr); ok {", "if inner, ok := embeddedIPv4(addr); ok && false {", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own", nil, "",
	},
	{
		"our own host is as good as any", "egress/check.go",
		"case isLocal:", "case false:", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own", nil, "",
	},

	// Input of strangers.
	{
		"bounds may decrease", "sync/internal/negentropy/message.go",
		"return bound{}, violation(\"bounds don't increase\")", "_ = violation", "./sync/internal/negentropy", "Test", nil, "",
	},

	// Behavior of strangers, our store and our limits. The simulation detects it by lost or foreign
	// events, and by its final figures.
	{
		"one deletion has all sent anew that is followed", "sync/internal/plan/plan.go",
		"drop(&r.live.missing, it)", "r.live.stale = true", "./sync", "TestSimulation$",
		oneSeed(6), "bytes sent by a deletion",
	},
	{
		"a deletion of many ids waits for sixteen", "sync/internal/pending/key.go",
		"const MaxDependencies = 10_000", "const MaxDependencies = 16", "./sync", "TestDeletionOfManyIDs", nil, "",
	},
	{
		"a deletion of many ids is looked up for a hundred", "sync/policy.go",
		"found, err := view.Events(ctx, ids)", "ids = ids[:min(len(ids), 100)]\n	found, err := view.Events(ctx, ids) // all at once", "./sync", "TestSimulation$",
		oneSeed(21), "foreign",
	},
	{
		"nothing begins while our store is not sure that it gave all", "sync/scan.go",
		"if err != nil {\n		m.inbox.put(scanResult{err: err})\n		return\n	}\n	if missed", "if err == nil {\n		err = missed\n	}\n	if err != nil {\n		m.inbox.put(scanResult{err: err})\n		return\n	}\n	if missed", "./sync", "TestSimulation$",
		oneSeed(34), "lost",
	},
	{
		"a relay pays for what others put on it", "sync/writer.go",
		"w.keepRefused(j, IsRejected, v,", "if j.from != nil {\n		j.from.spend(j.size)\n	}\n	w.keepRefused(j, IsRejected, v,", "./sync", "TestSimulation$",
		oneSeed(26), "is honest, and was cut as hostile",
	},
	{
		"that we do not dial a relay is its failure", "sync/loop.go",
		"l.m.health.Closed(c.url)\n		l.m.telemetry.drop(\"not_dialed\"", "l.m.health.Failed(c.url, err)\n		l.m.telemetry.drop(\"not_dialed\"", "./sync", "TestSimulation$",
		oneSeed(35), "is not greater than \"0.8\"",
	},
	{
		"each id of a deletion is a question to the store", "sync/policy.go",
		"target, here := found[id]\n		if here && target.PubKey", "_, _ = view.Events(ctx, []graspsync.EventID{id})\n		target, here := found[id]\n		if here && target.PubKey", "./sync", "TestSimulation$",
		oneSeed(1), "is not less than \"20\"",
	},
	{
		"whoever says so is a maintainer", "sync/policy.go",
		"	if p.isMember(s.Ref, view) {\n		return accept()\n", "	if p != nil {\n		return accept()\n", "./sync", "TestSimulation$",
		oneSeed(6), "foreign",
	},
	{
		"the oldest id goes, whoever brought most", "sync/internal/pending/rejected.go",
		"return limit.Stranger{ID: u.Value().HostPort().Host}", "_ = u\n	return limit.Stranger{}", "./sync", "TestWaitingEventsOfOneRelayDriveOutNoOthers",
		nil, "at once; dropped",
	},
	{
		"who stores something waits until everything was gathered", "sync/internal/index/index.go",
		"for more {\n		more = some()\n	}", "x.mu.Lock()\n	defer x.mu.Unlock()\n	for k, v := range all {\n		visit(k, v)\n	}\n	_, _ = some, more", "./sync/internal/index", "TestEachReleasesTheLock",
		nil, "",
	},
	{
		"one event takes with it what was published beside it", "adapter/remote/store.go",
		"|| len(chunk) == 1 ||", "|| len(chunk) >= 1 ||", "./adapter/remote", "TestEventThatCutsTheConnectionIsAlone",
		nil, "",
	},
	{
		"a buffer grows beyond what is reserved", "sync/wstransport/conn.go",
		"larger := make([]byte, len(buf), max(size, len(buf)+1))\n	copy(larger, buf)\n	return larger", "return append(buf, make([]byte, max(size-len(buf), 1))...)[:len(buf)]", "./sync/wstransport", "TestPromiseP20_SmallUntilReserved",
		nil, "",
	},
	{
		"what waits can not be deleted", "adapter/purgatory/policy.go",
		"return p.ask(ctx, ev, src, &heldView{waiting})", "return p.ask(ctx, ev, src, view)", "./adapter/grasp", "TestDeletionOfWhatWaits",
		nil, "",
	},
	{
		"a deleted repository is served", "purgatory/remover.go",
		"kept, err := p.repos.Retire(waiting, ref, p.cfg.Times.Departed)", "kept, err := true, waiting.Err()", "./purgatory", "TestDepartedRepositories",
		nil, "",
	},
	{
		"one owner has all attempts", "sync/internal/plan/dialer.go",
		"if o.dialing >= ownerDials && o != &p.queue.operator {", "if false {", "./sync/internal/plan", "TestPromiseP37_AttemptsOfOneOwner",
		nil, "",
	},
	{
		"an owner yields to who has as much", "sync/internal/plan/dialer.go",
		"	if y.connections[o] < y.most {\n", "	if true {\n", "./sync/internal/plan", "TestPromiseP37_OwnersWithMostYieldTheirOwn", nil, "",
	},
	{
		"git outlives the process it works for", "purgatory/internal/gitrun/end_linux.go",
		"attr.Pdeathsig = syscall.SIGKILL", "attr.Pdeathsig = 0", "./purgatory/gitfetch", "TestGitEndsWithUs",
		nil, "",
	},
	{
		"refs of pull requests keep an announcement", "purgatory/remover.go",
		"return refs.HasState(), err", "return len(refs.At) > 0, err", "./purgatory", "TestExpiresDespiteRefsOfPullRequests",
		nil, "",
	},
	{
		"old faults of others can not be pushed", "purgatory/internal/fsck/fsck.go",
		"for _, name := range refused {", "for _, name := range slices.Concat(refused, accepted) {", "./purgatory/gitserve", "TestPromiseP31_OldFaultsArePushed",
		nil, "",
	},
	{
		"what a push deletes is in no log", "purgatory/gitserve/push.go",
		"changes(moves, now), time.Now())", "nil, time.Now())", "./purgatory/gitserve", "TestDeletionByAPushIsLogged",
		nil, "",
	},

	// Bugs found by reading the code.
	{
		"eight hours asleep are a moment", "sync/internal/plan/dialer.go",
		"away := max(now.Sub(s.absentSince), now.Round(0).Sub(s.absentSince.Round(0)))", "away := now.Sub(s.absentSince)", "./sync/internal/plan", "TestSuspendedMachine", nil, "should have 1 item(s), but has 0",
	},
	{
		"a relay was alive while we were asleep", "sync/relayend.go",
		"|| slept > aliveSlack ||", "|| slept > 1<<62 ||", "./sync", "TestSignsOfASuspendedMachine", nil, "8h0m0s",
	},
	{
		"who came first keeps later authors out", "sync/internal/plan/deletions.go",
		"a.list[i] = key", "_ = key", "./sync/internal/plan", "TestPromiseP37_LaterAuthors", nil, "100 of them never",
	},
	{
		"what had waited is let go of when it can not be saved", "sync/writer.go",
		"if !j.revived && j.incoming.Source", "if j.revived || j.incoming.Source", "./sync", "TestWhatHasWaitedIsKeptUntilItCanBeSaved", nil, "expected: int(3)",
	},
	{
		"each event that can not be saved is a line in the log", "sync/writer.go",
		"limit.Stranger{ID: \"saving\"}", "limit.Stranger{ID: fmt.Sprint(w.failures)}", "./sync", "TestStoreThatFailsPerEventLosesNothing/20m", nil, "lines of the log",
	},
	{
		"each event that a relay kept back is a line in the log", "sync/telemetry.go",
		"+ \" \" + msg}, 1) {", "+ \" \" + msg}, 1) || level == slog.LevelError {", "./sync", "TestLogsOfAWithholdingRelay", nil, "is not less than or equal to \"3\"",
	},
	{
		"a policy behind hooks can't tell whose word counts", "adapter/internal/embedding/policy.go",
		"	return h.Policy.Judge(ctx, e, src, view)\n}\n",
		"	return h.Policy.Judge(ctx, e, src, view)\n}\n\nfunc (*hooked) Heard(string, relaysync.View) map[graspsync.PubKey]bool { return nil }\n",
		"./adapter/khatru", "BeforeWhatIsHeld", nil, "",
	},
	{
		"a second store does not have what came by sync", "adapter/khatru/hooks.go",
		"				s.core.Call(\"OnEventSaved\", func() error { hook(ctx, e.Event); return nil })\n", "				_ = hook\n", "./adapter/khatru", "TestSecondStoreSeesWhatSyncDoes", nil, "elements differ",
	},
	{
		"a second store has what sync has deleted", "adapter/khatru/hooks.go",
		"				s.core.Call(\"DeleteEvent\", func() error { return hook(following(ctx), e.Event) })\n", "				_ = hook\n", "./adapter/khatru", "TestSecondStoreSeesWhatSyncDoes", nil, "elements differ",
	},
	{
		"what the relay keeps is deleted by sync", "adapter/internal/embedding/imports.go",
		"	case msg != \"\":\n		return graspsync.Outcome{Result: graspsync.Refused", "	case msg == \"never\":\n		return graspsync.Outcome{Result: graspsync.Refused", "./adapter/khatru", "TestOverwriteDeletionOutcomeOfSync", nil, "Not equal",
	},
	{
		"who has vanished may do so again and again", "sync/view.go",
		"		if ev.Kind != graspsync.KindVanish {\n			return true, nil", "		if ev.Kind > 0 {\n			return true, nil", "./sync", "TestVanishingTwice", nil, "actual  : 100",
	},
	{
		"a follower keeps nothing for its next start", "cmd/follower/main.go",
		"		State:    kept,\n", "", "./cmd/follower", "TestFollow$", nil, "does not contain",
	},
	{
		"who trickles keeps what all share", "sync/wstransport/readbudget.go",
		"slow := held > rateGrace && ", "slow := false && ", "./sync/wstransport", "TestPromiseP37_TrickledMessagesGiveWay", nil, "20 if they are left alone",
	},
	{
		"what was pushed for no event stays", "purgatory/gitserve/staging.go",
		"return now.Sub(u.Since) >= s.cfg.StageHold", "return false", "./purgatory/gitserve", "TestUploadWithoutEventIsNotServedAndGoes", nil, "Condition never satisfied",
	},
	{
		"what nothing names stays", "purgatory/gitfetch/maintain.go",
		"	case prune:\n		return m.prune(ctx)\n", "	case prune:\n		m.done.Pruned = true\n		return nil\n", "./purgatory/gitfetch", "TestWhatNothingNamesGoesAfterItsGrace", nil, "Should be false",
	},
	{
		"what a push has moved may not be on the disk", "purgatory/gitserve/push.go",
		"return end, r.sync(path.Dir(to))", "return end, nil", "./purgatory/gitserve", "TestFoldersAreOnTheDisk", nil, "\"objects/pack\"",
	},
	{
		"what we have moved may not be on the disk", "purgatory/gitfetch/refs.go",
		"if err := barerepo.SyncRefs(dir, names, f.disk.sync); err != nil {", "if err := barerepo.SyncRefs(dir, names, func(string) error { return nil }); err != nil {", "./purgatory/gitfetch", "TestRefsAreOnTheDisk", nil, "elements differ",
	},
	{
		"what is shared is copied", "purgatory/gitfetch/files.go",
		"	err := on.Link(from, to)\n", "	err := errors.New(from)\n", "./purgatory/gitfetch", "TestShareTakesNoRoom", nil, "is not less than \"1048576\"",
	},
	{
		"who reads slowly is judged by what the system has room for", "purgatory/gitserve/requests.go",
		"	writeWindows = 8\n", "	writeWindows = 1\n", "./purgatory/gitserve", "TestSlowReadersAreServed", nil, "is not greater than \"16777216\"",
	},
	{
		"an answer is ended in the middle", "purgatory/gitserve/handler.go",
		"const answerTimeouts = 8", "const answerTimeouts = 1", "./purgatory/gitserve", "TestAnswersAreNotBoundInTime", nil, "expected: 8",
	},
	{
		"who does not read an answer keeps his place", "purgatory/gitserve/requests.go",
		"if slow && slices.ContainsFunc(", "if slow && len(held) > 99 && slices.ContainsFunc(", "./purgatory/gitserve", "TestSlowReaderYields", nil, "actual  : 503",
	},
	{
		"a panic keeps a repository locked", "purgatory/gitserve/push.go",
		"	defer done()\n	if left != nil {", "	if left != nil {", "./purgatory/gitserve", "TestPanicUnderTheLock", nil, "too many requests at once",
	},
	{
		"a repository that needs nothing gives nothing", "purgatory/internal/refplan/group.go",
		"		case ref == r.Ref:\n", "		case ref == r.Ref, g.NewestStored(g.Repository(ref)) != nil:\n", "./purgatory", "TestSharedWithWhoComesLater", nil, "Should be true",
	},
	{
		"what one repository got is not given to the others", "purgatory/pulls.go",
		"; lacks && ref != r.Ref && r.Has", "; false && lacks && ref != r.Ref && r.Has", "./purgatory", "TestGainedWhileAnotherOneIsLookedAt", nil, "Not equal",
	},
	{
		"a push of what is there already is refused", "purgatory/gitserve/push.go",
		"if now[c.ref.String()] != c.new && now[c.ref.String()] != c.old {", "if now[c.ref.String()] != c.old {", "./purgatory/gitserve", "TestPushOfWhatIsThereAlready", nil, "it has changed meanwhile",
	},
	{
		"a push that moves nothing brings its objects", "purgatory/gitserve/push.go",
		"return now[c.ref.String()] == c.new })", "return false })", "./purgatory/gitserve", "TestPushThatMovesNothingBringsNothing", nil, "Should be empty",
	},
	{
		"a server that is asked too much does not say so to us", "purgatory/gitfetch/errors.go",
		"perr == nil && at.HostPort() == from.HostPort() {\n			return fmt.Errorf(\"%w: %w\", &purgatory.BusyError", "perr == nil && at.HostPort() != from.HostPort() {\n			return fmt.Errorf(\"%w: %w\", &purgatory.BusyError", "./purgatory/gitfetch", "TestAServerThatIsBusySaysSo", nil, "too_many_GET",
	},
	{
		"a server that is asked too much is asked on", "purgatory/fetch.go",
		"x.fetched.Pause = max(busy.After, 1)", "x.fetched.Pause = 0", "./purgatory", "TestAServerThatIsBusyIsLeftAlone", nil, "should have 1 item(s)",
	},
	{
		"a server that has both a state and a pull request is asked for one of them", "purgatory/fetch.go",
		" && p.more(ask, seen)", " && false", "./purgatory", "TestOneServerHasBoth$", nil, "without a backoff",
	},
	{
		"a slow server keeps its place while others wait", "purgatory/internal/syncqueue/syncqueue.go",
		"return age >= slowAfter &&", "return age >= 60*slowAfter &&", "./purgatory/internal/syncqueue", "TestSlowRequestsYield", nil, "is not less than",
	},
	{
		"all servers wait for the same time", "purgatory/internal/syncqueue/syncqueue.go",
		"	if q.cfg.Seed != 0 {", "	if false {", "./purgatory/internal/syncqueue", "TestWaitsAreLengthened", nil, "is not greater than",
	},
	{
		"an owner has a folder for ever", "purgatory/gitserve/repositories.go",
		"	return r.dropOwner(path.Dir(at))\n}\n\n// make", "	return nil\n}\n\n// make", "./purgatory/gitserve", "TestCreateAndRemove", nil, "its owner has no other",
	},
	{
		"repositories are not under the path of their server", "adapter/grasp/server.go",
		"if below, ok := below(r, path); ok {", "if below, ok := below(r, path); ok && site == nil {", "./adapter/grasp", "TestRepositoriesUnderAPath", nil, "got 404",
	},
	{
		"a server under a path answers outside of it", "adapter/grasp/server.go",
		"case s.whole:\n", "case s.whole || site != nil:\n", "./adapter/grasp", "TestNothingOutsideOfAPath", nil, "",
	},
	{
		"browsers may not see what is refused", "purgatory/gitserve/handler.go",
		"if everywhere(w); r.Method == http.MethodOptions {", "if r.Method == http.MethodOptions {\n			everywhere(w)", "./purgatory/gitserve", "TestRequests", nil, "expected: \"*\"",
	},
	{
		"who asks for the head of an answer is refused", "purgatory/gitserve/handler.go",
		"if r.Method != method && (r.Method != http.MethodHead || method != http.MethodGet) {", "if r.Method != method {", "./purgatory/gitserve", "TestRequests", nil, "actual  : 405",
	},
	{
		"a repository has no page", "purgatory/gitserve/handler.go",
		"isPage := ok && rest == \"\" && (", "isPage := ok && rest == \"page\" && (", "./purgatory/gitserve", "TestPageOfARepository", nil, "actual  : 404",
	},
	{
		"a user may not try again", "purgatory/pending.go",
		"case ignored && !e.ByUser:", "case ignored:", "./purgatory", "TestSubmittedAgainAfterExpiry", nil, "Not equal",
	},
	{
		"who has a part of the history may not push", "purgatory/gitserve/pushrequest.go",
		"		if err == nil && id.IsZero() {\n			err = fmt", "		if err == nil || id.IsZero() {\n			err = fmt", "./purgatory/gitserve", "TestPushFromAShallowClone", nil, "git [push",
	},
	{
		"what is being fetched for expires", "purgatory/pending.go",
		"|| pe.fetchesFor(e) {\n", "|| e.Class == refplan.Announcement && pe.fetchesFor(e) {\n", "./purgatory", "TestExpiryWaitsForAFetch", nil, "its data is being fetched",
	},
	{
		"a state expires during its release", "purgatory/pending.go",
		"h.unusable = !pe.table.isReleasing(e)", "h.unusable = e.Size > 0", "./purgatory", "TestStatesDoNotExpireDuringTheirRelease", nil, "Should be true",
	},
	{
		"what nobody was asked for expires", "purgatory/remover.go",
		"|| p.owed(now, e) && p.pending", "|| !p.owed(now, e) && p.pending", "./purgatory", "TestHubOfManyRepositories", nil, "",
	},
	{
		"what takes long never comes", "purgatory/gitfetch/fetch.go",
		"took >= f.cfg.earned(bytes)", "took >= f.cfg.earned(0*bytes)", "./purgatory/gitfetch", "TestPromiseP30_Rate", nil, "time limit exceeded",
	},
	{
		"what is large never comes", "purgatory/internal/servers/servers.go",
		"case tooMuch && len(q.IDs) > 1:", "case false:", "./purgatory", "TestALargeRepositoryComesInParts", nil, "TestALargeRepositoryComesInParts/3",
	},
	{
		"one slow server holds a repository", "purgatory/internal/syncqueue/syncqueue.go",
		"secondAfter = 30 * time.Second", "secondAfter = 30 * time.Hour", "./purgatory", "TestOneSlowServerDoesNotHoldARepository", nil, "half a minute, and no ten",
	},
	{
		"what is malformed is judged again and again", "adapter/purgatory/policy.go",
		"strings.HasPrefix(reason, \"invalid:\") {", "strings.HasPrefix(reason, \"invalid::\") {", "./adapter/purgatory", "TestMalformedIsFinal", nil, "Should be empty",
	},
}
