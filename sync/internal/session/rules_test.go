package session

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// rules are the permanent refusals of a world's relay.
type rules struct {
	kindless bool
	values   int // maximum values in one list
	filters  int // maximum filters in one request
	ids      int // maximum ids in one request
	poison   string
	noZero   bool // refuses limit 0
	auth     authRule
	unsaid   bool // gives no reason
	notice   bool // refuses by NOTICE

	authed, challenged bool
}

type authRule int

const (
	authFree authRule = iota
	authAsked
	authFails
	authRules
)

func drawRules(src source) rules {
	r := rules{unsaid: src.n(2) == 0, notice: src.n(3) == 0}
	if src.n(2) > 0 {
		return r
	}
	r.kindless = src.n(3) == 0
	if src.n(3) == 0 {
		r.values = 1 + src.n(4)
	}
	if src.n(3) == 0 {
		r.filters = 1 + src.n(3)
	}
	if src.n(3) == 0 {
		r.ids = 1 + src.n(4)
	}
	if src.n(3) == 0 {
		r.poison = "z"
	}
	r.noZero = src.n(3) == 0
	if src.n(3) == 0 {
		r.auth = authRule(src.n(int(authRules)))
	}
	return r
}

// someFilter returns a filter for some different roots.
func (w *world) someFilter() nostr.Filter {
	from := w.src.n(len(roots))
	n := 1 + w.src.n(len(roots))
	f := nostr.Filter{Tags: nostr.TagMap{"e": {}}}
	for i := range n {
		f.Tags["e"] = append(f.Tags["e"], roots[(from+i)%len(roots)])
	}
	if w.src.n(3) == 0 {
		f.Kinds = []int{graspsync.KindAnnouncement, graspsync.KindState, 1111}
	}
	return f
}

// refusal returns the reason to refuse a request, "" if none.
func (r *rules) refusal(req wire.Request) string {
	if r.filters > 0 && len(req.Filters) > r.filters {
		return "bad req: too many filters"
	}
	for _, f := range req.Filters {
		switch {
		case r.noZero && f.LimitZero:
			return "invalid: Filter 'limit' must be a positive integer, got 0"
		case r.ids > 0 && len(f.IDs) > r.ids:
			return "too many ids"
		case f.IDs != nil:
		case r.kindless && kindless(f):
			return "blocked: can't handle empty filters"
		case r.values > 0 && len(f.Tags["e"]) > r.values:
			return "too many tag values"
		case r.poison != "" && slices.Contains(f.Tags["e"], r.poison):
			return "bad req: filter item too large"
		}
	}
	return ""
}

// refuses answers a request that violates the rules with a refusal.
func (w *world) refuses(req wire.Request) bool {
	r := &w.rules
	if r.auth != authFree && !r.authed {
		if !r.challenged {
			r.challenged = true
			w.say(wire.Message{Type: wire.TypeAuth, Text: "challenge"})
		}
		w.refuseWith(req, "auth-required: who are you?", r.notice)
		return true
	}
	text := r.refusal(req)
	if text == "" {
		return false
	}
	if r.unsaid {
		text = "invalid: no"
	}
	w.refuseWith(req, text, r.notice)
	return true
}

func (w *world) refuseWith(req wire.Request, text string, byNotice bool) {
	switch {
	case req.Type == wire.TypeNegOpen:
		w.say(wire.Message{Type: wire.TypeNegErr, Sub: req.Sub, Text: text})
	case byNotice:
		w.say(notice(text), eose(req.Sub))
	default:
		delete(w.open, req.Sub)
		w.say(closed(req.Sub, text))
	}
}

// sign answers with our key after any time.
func (w *world) sign() {
	fails := w.src.n(5) == 0 && !w.calm
	w.answers = append(w.answers, func() []Action {
		if fails {
			return w.s.Signed(w.now, nil, errors.New("no key"))
		}
		return w.s.Signed(w.now, event(7777, 0, ""), nil)
	})
}

func (w *world) authenticated(req wire.Request) {
	require.False(w.t, w.rules.authed, "P10: a second AUTH")
	w.rules.authed = w.rules.auth == authAsked
	id, err := graspsync.ParseEventID(req.Event.ID)
	require.NoError(w.t, err)
	if w.calm || w.src.n(5) > 0 {
		w.say(wire.Message{Type: wire.TypeOK, ID: id, Accepted: w.rules.authed})
	}
}

// Events that a well-behaved relay would return in another form are fetched in a limited number of
// requests.
func TestWorldsOfRules(t *testing.T) {
	seeds := []uint64{309, 690, 824} // more ids than one reconciliation takes
	for seed := range uint64(racetest.Rounds(100)) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, &randSource{rand.New(rand.NewPCG(seed, 7)), 0})
			w.calm, w.s.cfg.Auth = true, true
			for id := range w.hidden {
				w.hidden[id] = false
			}
			if w.kind == refusesSilently || w.kind == negBroken {
				w.kind = offersNeg
			}
			w.follow()
			w.follow()
			for range 3 {
				w.fetch()
			}
			w.finish()
			hopeless := w.rules.auth == authFails
			for _, r := range w.results {
				if hopeless {
					require.Equal(t, plan.Refused, r)
				} else {
					require.Less(t, r, plan.Failed, "%+v", w.rules)
				}
			}
			require.Less(t, len(w.used), 2_000)
			if len(w.lives) > 0 && !hopeless {
				live, _, _ := w.s.open()
				require.NotZero(t, live+len(w.s.caps.excluded))
			}
		})
	}
}
