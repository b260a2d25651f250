package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// phrase is a text of a relay and the message that it answers.
type phrase struct {
	label string // NOTICE, CLOSED, NEG-ERR
	to    string // NEG-OPEN, REQ, live REQ
	text  string
	max   int
}

// phrases are known texts of strfry, khatru and relays built on it, go-nostr, rust-nostr's relay
// builder, nostream and others.
var phrases = []phrase{
	{"NOTICE", "NEG-OPEN", "ERROR: bad msg: negentropy disabled", 0},
	{"NOTICE", "NEG-OPEN", "could not parse command", 0},
	{"NOTICE", "NEG-OPEN", "Invalid enum value. Expected 'EVENT' | 'REQ' | 'CLOSE', received 'NEG-OPEN'", 0},
	{"NOTICE", "NEG-OPEN", "error: bad message", 0},
	{"NOTICE", "NEG-OPEN", "bad message type", 0},
	{"NOTICE", "NEG-OPEN", "invalid client message", 0},
	{"NEG-ERR", "NEG-OPEN", "rate-limited: too many negentropy subscriptions", 0},
	{"NEG-ERR", "NEG-OPEN", "rate-limited: too many negentropy items", 0},
	{"NEG-ERR", "NEG-OPEN", "rate-limited: too many queries", 0},
	{"NEG-ERR", "NEG-OPEN", "error: subscription not found", 0},
	{"NEG-ERR", "NEG-OPEN", "error: invalid negentropy message", 0},
	{"NOTICE", "NEG-OPEN", `"value" does not match any of the allowed types`, 0},
	{"NOTICE", "NEG-OPEN", "Command unrecognized", 0},
	{"NOTICE", "NEG-OPEN", "failed to parse envelope: unknown envelope label", 0},
	{"NOTICE", "NEG-OPEN", "ERROR: negentropy error: negentropy query missing elements", 0},
	{"NOTICE", "NEG-OPEN", `ERROR: bad msg: invalid message: ["NEG-OPEN"]`, 0},
	{"NOTICE", "NEG-OPEN", "ERROR: bad msg: unknown cmd", 0},
	{"NOTICE", "NEG-OPEN", "bad msg", 0},
	{"NOTICE", "NEG-OPEN", "error", 0},
	{"NOTICE", "NEG-OPEN", "unsupported", 0},
	{"NOTICE", "NEG-OPEN", "unknown", 0},
	{"NOTICE", "NEG-OPEN", "disabled", 0},
	{"NOTICE", "NEG-OPEN", "ERROR: negentropy error: parse error", 0},
	{"NOTICE", "NEG-OPEN", "ERROR: bad req: filter item too large", 0},
	{"NOTICE", "NEG-OPEN", "ERROR: too many concurrent NEG requests", 0},
	{"NOTICE", "NEG-OPEN", "auth-required: who are you?", 0},
	{"NOTICE", "NEG-OPEN", "rate-limited: slow down", 0},
	{"NOTICE", "NEG-OPEN", "welcome to this relay", 0},
	{"NEG-ERR", "NEG-OPEN", "error: negentropy disabled", 0},
	{"NEG-ERR", "NEG-OPEN", "unsupported: no NIP-77 here", 0},
	{"CLOSED", "NEG-OPEN", "unsupported: NIP-77", 0},
	{"NEG-ERR", "NEG-OPEN", "blocked: too many query results", 1_000_000},
	{"NEG-ERR", "NEG-OPEN", "blocked: this query is too big", 0},
	{"NEG-ERR", "NEG-OPEN", "blocked: in other words", 500},
	{"NEG-ERR", "NEG-OPEN", "blocked: pubkey not allowed", 0},
	{"NEG-ERR", "NEG-OPEN", "blocked: an author must be specified to get their kind:1 notes", 0},
	{"NEG-ERR", "NEG-OPEN", "PROTOCOL-ERROR", 0},
	{"NEG-ERR", "NEG-OPEN", "closed: unknown subscription handle", 0},
	{"NEG-ERR", "NEG-OPEN", "CLOSED", 0},
	{"NEG-ERR", "NEG-OPEN", "auth-required: who are you?", 0},
	{"NEG-ERR", "NEG-OPEN", "restricted: not for you", 0},
	{"NEG-ERR", "NEG-OPEN", "rate-limited: slow down", 0},

	{"CLOSED", "REQ", "bad req: filter item too large", 0},
	{"NOTICE", "REQ", "ERROR: bad req: uneven size input to from_hex", 0},
	{"CLOSED", "REQ", "invalid: filter", 0},
	{"CLOSED", "REQ", "unsupported: filter contains unknown elements", 0},
	{"NOTICE", "REQ", "too many tag values", 0},
	{"NOTICE", "REQ", "too many kinds", 0},
	{"CLOSED", "REQ", "blocked: too many things to filter for", 0},
	{"CLOSED", "REQ", "blocked: an author must be specified to get their kind:1 notes", 0},
	{"CLOSED", "REQ", "blocked: can't handle empty filters", 0},
	{"NOTICE", "REQ", "ERROR: too many concurrent REQs", 0},
	{"CLOSED", "REQ", "rate-limited: too many REQs", 0},
	{"CLOSED", "REQ", "rate-limited: active subscriptions exceed max size 1048576 bytes", 0},
	{"CLOSED", "REQ", "rate-limited: too many queries", 0},
	{"NOTICE", "REQ", "invalid client message", 0},
	{"CLOSED", "REQ", "bad req: invalid number of filters: 8", 0},
	{"CLOSED", "REQ", "restricted: you are not a member of this relay", 0},
	{"NOTICE", "REQ", "Maximum concurrent subscription count reached", 0},
	{"CLOSED", "REQ", "rate-limited: there is a bug in the client, no one should be making so many requests", 0},
	{"NOTICE", "REQ", "you are noting too much", 0},
	{"CLOSED", "REQ", "auth-required: all requests must be authenticated", 0},
	{"CLOSED", "REQ", "restricted: not on the list", 0},
	{"CLOSED", "REQ", "blocked: you are banned", 0},
	{"CLOSED", "REQ", "error: could not connect to the database", 0},
	{"CLOSED", "REQ", "pow: difficulty 26 is less than 30", 0},
	{"CLOSED", "REQ", "", 0},
	{"NOTICE", "REQ", "could not parse command", 0},
	{"NOTICE", "REQ", "bad msg: negentropy disabled", 0},
	{"NOTICE", "REQ", "welcome to this relay", 0},

	{"CLOSED", "live REQ", "bad req: too many filters", 0},
	{"CLOSED", "live REQ", "rate-limited: REQ exceeds max filter count 1", 0},
	{"CLOSED", "live REQ", "rate-limited: too many REQs", 0},
	{"CLOSED", "live REQ", "rate-limited: active subscriptions exceed max size 1048576 bytes", 0},
	{"CLOSED", "live REQ", "error: live event buffer overflow; resubscribe to recover stored events", 0},
	{"CLOSED", "live REQ", "blocked: this is a private relay", 0},
	{"CLOSED", "live REQ", "bad req: filter item too large", 0},
	{"NOTICE", "live REQ", "ERROR: too many concurrent REQs", 0},
	{"CLOSED", "live REQ", "auth-required: who are you?", 0},
	{"CLOSED", "live REQ", "restricted: not on the list", 0},
	{"CLOSED", "live REQ", "rate-limited: slow down", 0},
	{"CLOSED", "live REQ", "error: shutting down idle subscription", 0},
}

// say sends a phrase to a session with an open request, and returns its classification and the
// effects.
func (p phrase) say(t *testing.T) (wire.Refusal, []Action) {
	c := defaults()
	c.Auth = true
	s := New(c)
	s.Receive(start, wire.Message{Type: wire.TypeAuth, Text: "challenge"})
	f := taggingAny("a,b,c,d,e,f,g,h,i,j,k,l")
	var req wire.Request
	switch p.to {
	case "live REQ":
		s.Follow(start, 1, []nostr.Filter{filters.Live(tagging("x"))})
		s.Receive(start, eose("l2"))
		req = sent(t, s.Follow(start, 2, []nostr.Filter{filters.Live(f), filters.Live(filters.Layer1())}))
	case "REQ":
		open := sent(t, s.Fetch(start, batchOf(1, plan.Recent, tagging("x"))))
		s.Receive(start, eventMsg(open.Sub, event(1, 0, "x")))
		req = sent(t, s.Fetch(start, batchOf(2, plan.Recent, f)))
	default:
		load := one[LoadSet](t, s.Fetch(start, batchOf(1, plan.History, f)))
		req = sent(t, s.SetLoaded(start, load.Query, setOf(), nil))
	}
	switch p.label {
	case "NOTICE":
		return wire.Classify(p.text), s.Receive(start, notice(p.text))
	case "CLOSED":
		if p.to == "NEG-OPEN" {
			return wire.ClassifyNegErr(p.text, 0), s.Receive(start, closed(req.Sub, p.text))
		}
		return wire.Classify(p.text), s.Receive(start, closed(req.Sub, p.text))
	}
	m := wire.Message{Type: wire.TypeNegErr, Sub: req.Sub, Text: p.text, Max: p.max}
	return wire.ClassifyNegErr(p.text, p.max), s.Receive(start, m)
}

// effect describes actions in words.
func (p phrase) effect(actions []Action) string {
	var out []string
	then := "repeat it when another request has ended"
	for _, a := range actions {
		switch a := a.(type) {
		case Learned:
			out = append(out, fmt.Sprintf("remember %s=%d", a.Kind, a.Value))
			if a.Kind == relaylimits.NoNegentropy {
				then = "use pages"
			} else if !slices.Contains([]relaylimits.Kind{relaylimits.MaxSubscriptions, relaylimits.MaxRetained, relaylimits.Pace}, a.Kind) {
				then = "repeat it within the limit"
			}
		case RateLimited:
			out, then = append(out, "send no new request for 65 s"), "repeat it"
		case Authenticate:
			out, then = append(out, "authenticate, once"), "repeat it"
		case LiveClosed:
			then = fmt.Sprintf("subscribe again (%s)", a.Why)
		case Notice:
			then = "log it; if the next message is EOSE, the request failed"
			if p.to == "NEG-OPEN" {
				then = "log it"
			}
		case Done:
			then = "fail; repeat it after a short wait"
			if a.Result == plan.Refused {
				then = "fail; repeat it after the longest wait"
			}
		case Send:
			switch r := a.Request; {
			case r.Type == wire.TypeNegOpen:
				then = "repeat it"
			case r.Type == wire.TypeReq && r.Sub[0] == 'p':
				then = "find the refused value"
			case r.Type == wire.TypeReq && p.to == "NEG-OPEN":
				then = "use pages"
			}
		}
	}
	return strings.Join(append(out, then), "; ")
}

// TestPhrases keeps a table of texts of relays, their classification and their effects in
// testdata/phrases.md.
func TestPhrases(t *testing.T) {
	var out strings.Builder
	out.WriteString("# Refusals of relays\n\n| message | in answer to | meaning | reaction |\n|---|---|---|---|\n")
	for _, p := range phrases {
		why, actions := p.say(t)
		text := p.text
		if p.max > 0 {
			text += fmt.Sprintf(" (%d)", p.max)
		}
		text = strings.ReplaceAll(text, "|", `\|`)
		fmt.Fprintf(&out, "| %s “%s” | %s | %s | %s |\n", p.label, text, p.to, why, p.effect(actions))
	}
	goldentest.Equal(t, "testdata/phrases.md", out.String())
}
