package relaytest

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// anyProgram is an imaginary program with the most common behavior.
type anyProgram struct{}

var anyManners = manners{
	meter:      newWindow,
	greets:     true,
	authWords:  func(fault string) string { return fault },
	authRate:   "rate-limited: slow down, please",
	negOff:     "ERROR: bad msg: negentropy disabled",
	negLost:    "closed: unknown subscription handle",
	negInvalid: "PROTOCOL-ERROR",
	malformed:  "ERROR: bad msg: %v",
	overflow:   "error: you read too slowly",
	wrongID:    "invalid: id or signature",
	wrongSig:   "invalid: id or signature",
	eventRate:  "rate-limited: slow down, please",
	eventSize:  "invalid: %d bytes, more than %d",
}

func (anyProgram) manners() *manners { return &anyManners }

func (p anyProgram) request(c *Conn, req wire.Request, size int) *refusal {
	b := &c.relay.behavior
	if no := p.refuseAny(c, countsAgainstRate(req)); no != nil {
		return no
	}
	if n, _ := c.openSubs(req.Sub); b.MaxSubs > 0 && c.subs[req.Sub] == nil && n >= b.MaxSubs {
		return &refusal{text: "ERROR: too many concurrent REQs", notice: true}
	}
	if exceeds(len(req.Sub), b.MaxSubID) {
		return &refusal{text: "bad req: subscription id too long"}
	}
	if _, open := c.openSubs(req.Sub); exceeds(open+size, b.MaxSubBytes) {
		return &refusal{text: "blocked: subscriptions too large"}
	}
	return b.refuseFilters(req.Filters)
}

func (p anyProgram) negOpen(c *Conn, req wire.Request, found func() int) *refusal {
	b := &c.relay.behavior
	if no := p.refuseAny(c, true); no != nil {
		return no
	}
	if c.tooManyNegs(req.Sub) {
		return &refusal{text: "ERROR: too many concurrent NEG requests", notice: true}
	}
	if b.NegMax > 0 && found() > b.NegMax {
		return &refusal{text: orText(b.NegText, "blocked: too many query results"), max: b.NegMax}
	}
	return nil
}

func (anyProgram) negSend(c *Conn) *refusal {
	if !c.spend(rateNegs, c.relay.behavior.NegRate) {
		return &refusal{text: "rate-limited: slow down, please", rate: true}
	}
	return nil
}

func (anyProgram) ended(*Conn, *subscription, int) []frame { return nil }

// refuseAny returns the refusal that does not depend on the content of a request.
func (anyProgram) refuseAny(c *Conn, counts bool) *refusal {
	b := &c.relay.behavior
	switch before, after := c.wantsAuth(); {
	case before:
		return &refusal{text: "auth-required: all requests must be authenticated"}
	case after:
		return &refusal{text: "restricted: not on the list"}
	}
	if counts && !c.spend(rateQueries, b.RateLimit) {
		return &refusal{text: "rate-limited: slow down, please", notice: b.RateLimitNotice, rate: true}
	}
	return nil
}

// countsAgainstRate reports whether a REQ counts against the rate. A REQ for live events only does
// not.
func countsAgainstRate(req wire.Request) bool {
	return slices.ContainsFunc(req.Filters, func(f nostr.Filter) bool { return !f.LimitZero })
}

func emptyFilter(f nostr.Filter) bool {
	n := len(f.Kinds) + len(f.IDs) + len(f.Authors)
	for _, values := range f.Tags {
		n += len(values)
	}
	return n == 0
}

func complexFilter(f nostr.Filter) bool { return len(f.Tags) > 2 && len(f.Tags)+len(f.Kinds) > 4 }

type list struct {
	name  string
	tag   bool
	items []string
}

// lists returns the lists of a filter except kinds, ordered by name.
func lists(f nostr.Filter) []list {
	var all []list
	for _, name := range sortedKeys(f.Tags) {
		all = append(all, list{name: "#" + name, tag: true, items: f.Tags[name]})
	}
	return append(all, list{name: "authors", items: f.Authors}, list{name: "ids", items: f.IDs})
}

func (l list) bytes() int {
	n := 0
	seen := make(map[string]struct{}, len(l.items))
	for _, v := range l.items {
		if _, ok := seen[v]; !ok {
			seen[v] = struct{}{}
			n += len(v)
		}
	}
	return n
}
