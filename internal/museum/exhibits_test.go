package museum

// exhibit is a bug that somebody had.
type exhibit struct {
	name string // what went wrong
	file string
	old  string // this, once in the file,
	bug  string // is replaced by this
	pkg  string // whose tests catch it
	run  string // those tests
}

var exhibits = []exhibit{
	// Paging.
	{
		"until exclusive: the rest of the second is lost", "filters/walk.go",
		"w.until = p.edge\n", "w.until = p.edge - 1\n", "./filters", "Walk",
	},
	{
		"a short page ends the walk", "filters/walk.go",
		"case p.size == 0:", "case p.size < w.limit:", "./filters", "Walk",
	},
	{
		"the oldest event counts, and not the last", "filters/walk.go",
		"if p.size > 1 && t == p.edge ||", "if p.size > 1 && t >= p.edge ||", "./filters", "Walk",
	},
	{
		"live subscriptions ask for the past", "filters/builders.go",
		"f.LimitZero = true", "f.Limit = 1", "./filters", "Live",
	},
	{
		"an identifier is cut at a colon", "filters/ids.go",
		"owner, identifier, ok := strings.Cut(rest, \":\")", "owner, identifier, ok := strings.Cut(rest, \":\")\n\tidentifier, _, _ = strings.Cut(identifier, \":\")", "./filters", "RepoRef|Address",
	},

	// Time.
	{
		"since is the time of the reconnect", "sync/internal/plan/cycle.go",
		"p.missedSince(r, r.aliveAt)", "p.missedSince(r, now)", "./sync", "TrapT7",
	},
	{
		"no overlap", "sync/internal/plan/live.go",
		"t.Add(-p.cfg.Overlap)", "t", "./sync/internal/plan", ".",
	},
	{
		"dials without a bound", "sync/internal/plan/dials.go",
		"for p.dialing < p.cfg.MaxDials {", "for p.dialing < 1<<20 {", "./sync/internal/plan", ".",
	},
	{
		"the backoff does not grow", "health/core.go",
		"d *= 2", "d += 0", "./health", ".",
	},
	{
		"the backoff has no end", "health/core.go",
		"c.lengthen(min(d, c.MaxBackoff), jitter)", "c.lengthen(d*2, jitter)", "./health", ".",
	},
	{
		"a flapping relay starts over at each connection", "health/core.go",
		"	if r.Failures > 0 {\n		r.RecoveredAt = now\n	}", "	if r.Failures > 0 {\n		r.RecoveredAt = now\n	}\n	r.Failures = 0", "./health", ".",
	},
	{
		"a dead relay is tried as ever", "health/core.go",
		"	wait := c.backoff(r.Failures, jitter)\n	if c.dead(r) {", "	wait := c.backoff(r.Failures, jitter)\n	if false {", "./health", ".",
	},

	// Who and what.
	{
		"ids are not compared with the event", "sync/ingest.go",
		"if !d.event.CheckID() {", "if false {", "./sync", "OddRelays.*/forged|ForgedCopy",
	},
	{
		"an id is known before it was verified", "sync/ingest.go",
		"if !d.event.CheckID() {", "g.known.add(id)\n\tif !d.event.CheckID() {", "./sync", "OddRelays.*/forged|ForgedCopy",
	},
	{
		"only the first tag counts", "nip34/tags.go",
		"if list = append(list, v); len(list) == most {", "if list = append(list, v); len(list) > 0 {", "./nip34", ".",
	},
	{
		"the highest id wins", "nip34/version.go",
		"a.ID.Compare(b.ID) < 0", "a.ID.Compare(b.ID) > 0", "./nip34", ".",
	},
	{
		"maintainers are not followed further", "nip34/maintainers.go",
		"queue = append(queue, m)", "_ = queue", "./nip34", ".",
	},
	{
		"servers on one host are taken for each other", "nip34/identity.go",
		"return b.authority == a && slices.Equal(b.path, path)", "return b.authority.Host == a.Host && slices.Equal(b.path, path)", "./nip34", ".",
	},
	{
		"the path of a relay is ignored", "nip34/identity.go",
		"return b.authority == a && slices.Equal(b.path, path)", "return b.authority == a", "./nip34", ".",
	},

	// Where we must not go.
	{
		"addresses are judged by their name only", "egress/judge.go",
		"return d.judge(to, host)\n}\n\nfunc (d *Dialer) hostAddrs", "_, _ = to, host\n\treturn nil\n}\n\nfunc (d *Dialer) hostAddrs", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own",
	},
	{
		"addresses within addresses are not looked at", "egress/judge.go",
		"if inner, ok := embedded(addr); ok {", "if inner, ok := embedded(addr); ok && false {", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own",
	},
	{
		"our own host is as good as any", "egress/judge.go",
		"case ofHost:", "case false:", "./egress", "Forbidden|Honest|Rebinding|SocketIsJudged|Addresses|Own",
	},

	// Strangers' bytes.
	{
		"bounds may decrease", "sync/internal/negentropy/message.go",
		"return bound{}, violation(\"bounds don't increase\")", "_ = violation", "./sync/internal/negentropy", "Test",
	},
}
