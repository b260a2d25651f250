package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// TestScripts plays the scripts in testdata. A line is a comment (#), an action caused by the line
// before (>), or an input at a time after the start:
//
//	config <field>=<number>...                first line
//	<time> follow l<n> <roots>...             a live subscription for events that tag
//	                                          the roots, one filter per <root>[,<root>]...
//	<time> unfollow l<n>
//	<time> fetch b<n> <kind> <roots>[<=<time>]...
//	<time> abandon b<n>
//	<time> event <sub> <from>-<to> [at=<time>] [each=<time>] [tag=<root>] [kind=<n>]
//	<time> eose <sub> [finish|more]
//	<time> closed <sub> <text>
//	<time> notice <text>
//	<time> relay <root> <from>-<to> [kind=<n>]
//	                                          events of the relay, a second apart
//	<time> neg <sub>                          the relay answers our last NIP-77 message
//	<time> negmsg <sub>                       the relay sends nonsense
//	<time> negerr <sub> <max> <text>
//	<time> loaded q<n> <from>-<to>|-|error    the set of stored events
//	<time> checked q<n> <from>-<to>|-|error   the missing ids
//	<time> challenge <text>
//	<time> signed [error]                     the key signs, or fails
//	<time> ok true|false <text>               the relay's answer to it
//	<time> unsent <sub> <bytes>               it exceeds the maximum message
//	<time> terms <field>=<number>...          the current limits
//	<time> excuse <time>, forged, tick, wake, cursors, open
//
// By default event n was created n seconds before the start.
func TestScripts(t *testing.T) {
	goldentest.Play(t, func(t *testing.T) goldentest.Player {
		p := player{t: t, cfg: defaults(), payload: make(map[string][]byte), asked: make(map[string][]nostr.Filter)}
		return p.command
	})
}

type player struct {
	t       *testing.T
	cfg     Config
	s       *Session
	relay   []*nostr.Event
	payload map[string][]byte // last NIP-77 message sent, by subscription
	asked   map[string][]nostr.Filter
}

var errCommand = errors.New("not a command")

func (p *player) command(words []string) (out []string, err error) {
	if words[0] == "config" {
		return nil, p.configure(words[1:])
	}
	if p.s == nil {
		p.s = New(p.cfg)
	}
	if len(words) < 2 {
		return nil, errCommand
	}
	now := start.Add(p.duration(words[0]))
	args := words[2:]
	switch words[1] {
	case "relay":
		p.relay = append(p.relay, p.events(args[1], args[0], args[2:])...)
		return nil, nil
	case "excuse":
		p.s.ExtendDeadlines(p.duration(args[0]))
		return nil, nil
	case "wake":
		at, ok := p.s.NextWake()
		if !ok {
			return []string{"never"}, nil
		}
		return []string{clock(at)}, nil
	case "open":
		live, historic, waiting := p.s.open()
		return []string{fmt.Sprintf("%d live, %d historic, %d waiting", live, historic, waiting)}, nil
	case "cursors":
		got := p.s.Cursors()
		for _, id := range slices.Sorted(maps.Keys(got)) {
			out = append(out, fmt.Sprintf("b%d %s", id, cursors(got[id])))
		}
		return out, nil
	}
	actions, err := p.input(now, words[1], args)
	for _, a := range actions {
		if s, ok := a.(Send); ok && s.Request.Payload != nil {
			p.payload[s.Request.Sub] = s.Request.Payload
			if s.Request.Filters != nil {
				p.asked[s.Request.Sub] = s.Request.Filters
			}
		}
		out = append(out, show(a))
	}
	return out, err
}

func (p *player) configure(words []string) error {
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(value)
		if err != nil {
			return err
		}
		switch name {
		case "neg":
			p.cfg.Limits.NoNegentropy = n == 0
			continue
		case "kinds":
			p.cfg.Limits.NeedsKinds = n > 0
			continue
		case "auth":
			p.cfg.Auth = n > 0
			continue
		case "pace":
			p.cfg.Limits.Pace = time.Duration(n) * time.Millisecond
			continue
		}
		field := map[string]*int{
			"historic": &p.cfg.Historic, "limit": &p.cfg.PageLimit, "maxpage": &p.cfg.MaxPage,
			"reconciling": &p.cfg.Reconciling, "chunk": &p.cfg.IDChunk, "pagesize": &p.cfg.PageSize,
			"negids": &p.cfg.NegIDs, "values": &p.cfg.Limits.MaxValues, "filters": &p.cfg.Limits.MaxFilters,
			"message": &p.cfg.Limits.MaxMessage, "subs": &p.cfg.Limits.MaxSubscriptions,
			"retained": &p.cfg.Limits.MaxRetained,
		}[name]
		if field == nil {
			return errCommand
		}
		*field = n
	}
	return nil
}

func (p *player) input(now time.Time, verb string, args []string) ([]Action, error) {
	switch verb {
	case "tick":
		return p.s.Tick(now), nil
	case "signed":
		if len(args) > 0 {
			return p.s.Signed(now, nil, errors.New("no key")), nil
		}
		return p.s.Signed(now, event(77, 0, ""), nil), nil
	case "unsent":
		size, err := strconv.Atoi(args[1])
		return p.s.Unsent(now, args[0], size, "message too large"), err
	case "terms":
		err := p.configure(args)
		p.s.SetLimits(p.cfg.Limits, nil)
		return nil, err
	case "forged":
		return p.s.Forged(now, "bad signature"), nil
	case "follow":
		fs := make([]nostr.Filter, 0, len(args))
		for _, root := range args[1:] {
			fs = append(fs, filters.Live(taggingAny(root)))
		}
		return p.s.Follow(now, plan.LiveID(p.num(args[0])), fs), nil
	case "unfollow":
		return p.s.Unfollow(now, plan.LiveID(p.num(args[0]))), nil
	case "fetch":
		return p.s.Fetch(now, p.batch(now, args)), nil
	case "abandon":
		return p.s.Abandon(now, plan.BatchID(p.num(args[0]))), nil
	case "event":
		var out []Action
		root := "x"
		for _, a := range args[2:] {
			if v, ok := strings.CutPrefix(a, "tag="); ok {
				root = v
			}
		}
		for _, ev := range p.events(args[1], root, args[2:]) {
			out = append(out, p.s.Receive(now, eventMsg(args[0], ev))...)
		}
		return out, nil
	case "loaded":
		set, err := p.set(args[1])
		return p.s.SetLoaded(now, QueryID(p.num(args[0])), set, err), nil
	case "checked":
		var ids []graspsync.EventID
		var err error
		switch args[1] {
		case "-":
		case "error":
			err = errors.New("store failed")
		default:
			for _, ev := range p.events(args[1], "x", nil) {
				id, _ := graspsync.ParseEventID(ev.ID)
				ids = append(ids, id)
			}
		}
		return p.s.Checked(now, QueryID(p.num(args[0])), ids, nil, err), nil
	}
	m, err := p.message(verb, args)
	if err != nil {
		return nil, err
	}
	return p.s.Receive(now, m), nil
}

func (p *player) message(verb string, args []string) (wire.Message, error) {
	switch verb {
	case "eose":
		m := eose(args[0])
		if len(args) > 1 {
			m.Hint = map[string]wire.Hint{"finish": wire.HintFinish, "more": wire.HintMore}[args[1]]
		}
		return m, nil
	case "closed":
		return closed(args[0], strings.Join(args[1:], " ")), nil
	case "notice":
		return notice(strings.Join(args, " ")), nil
	case "challenge":
		return wire.Message{Type: wire.TypeAuth, Text: args[0]}, nil
	case "ok":
		return wire.Message{Type: wire.TypeOK, ID: eventID(77), Accepted: args[0] == "true", Text: strings.Join(args[1:], " ")}, nil
	case "neg":
		has := slices.Clone(p.relay)
		if m := filters.Compile(p.asked[args[0]]); len(p.asked[args[0]]) > 0 {
			has = slices.DeleteFunc(has, func(ev *nostr.Event) bool { return !m.Match(ev) })
		}
		reply, err := negentropy.Answer(setOf(has...), p.payload[args[0]], 4096)
		return wire.Message{Type: wire.TypeNegMsg, Sub: args[0], Payload: reply}, err
	case "negmsg":
		return wire.Message{Type: wire.TypeNegMsg, Sub: args[0], Payload: []byte{0x61, 0xff}}, nil
	case "negerr":
		limit, err := strconv.Atoi(args[1])
		return wire.Message{Type: wire.TypeNegErr, Sub: args[0], Max: limit, Text: strings.Join(args[2:], " ")}, err
	}
	return wire.Message{}, errCommand
}

func (p *player) batch(now time.Time, args []string) plan.Batch {
	kind := map[string]plan.Kind{"history": plan.History, "daily": plan.DailyHistory, "recent": plan.Recent, "deletions": plan.Deletions}[args[1]]
	b := plan.Batch{ID: plan.BatchID(p.num(args[0])), Kind: kind, Deadline: now.Add(30 * time.Minute)}
	for _, a := range args[2:] {
		root, until, _ := strings.Cut(a, "<=")
		q := plan.Query{Filter: taggingAny(root)}
		if until != "" {
			q.Until = start.Add(p.duration(until)).Unix()
		}
		b.Queries = append(b.Queries, q)
	}
	return b
}

func taggingAny(roots string) nostr.Filter {
	return nostr.Filter{Tags: nostr.TagMap{"e": strings.Split(roots, ",")}}
}

func (p *player) set(word string) (*negentropy.Set, error) {
	switch word {
	case "-":
		return setOf(), nil
	case "none":
		return nil, nil
	case "error":
		return nil, errors.New("store failed")
	}
	return setOf(p.events(word, "x", nil)...), nil
}

func (p *player) events(span, root string, opts []string) (out []*nostr.Event) {
	a, b, ok := strings.Cut(span, "-")
	if !ok {
		b = a
	}
	from, err := strconv.Atoi(a)
	require.NoError(p.t, err)
	to, err := strconv.Atoi(b)
	require.NoError(p.t, err)
	at, each, kind := -time.Duration(from)*time.Second, -time.Second, graspsync.KindNote
	for _, o := range opts {
		if v, ok := strings.CutPrefix(o, "at="); ok {
			at = p.duration(v)
		}
		if v, ok := strings.CutPrefix(o, "each="); ok {
			each = p.duration(v)
		}
		if v, ok := strings.CutPrefix(o, "kind="); ok {
			kind, err = strconv.Atoi(v)
			require.NoError(p.t, err)
		}
	}
	name := "e"
	if v, ok := strings.CutPrefix(root, "E"); ok {
		name, root = "E", v
	}
	for n := from; n <= to; n++ {
		ev := event(n, at+time.Duration(n-from)*each, root)
		ev.Tags, ev.Kind = nostr.Tags{{name, root}}, kind
		out = append(out, ev)
	}
	return out
}

func (p *player) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	require.NoError(p.t, err)
	return d
}

func (p *player) num(word string) uint64 {
	n, err := strconv.ParseUint(word[1:], 10, 64)
	require.NoError(p.t, err)
	return n
}
