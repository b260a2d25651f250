package session

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

const sqlValues = 10

// sinceBack is the time before now at which a live subscription without limit 0 begins.
const sinceBack = 15 * time.Minute

// relayCaps contains the limits of the relay and makes filters that respect them.
type relayCaps struct {
	relaylimits.Limits
	liveNoNotes bool // learned from a live subscription
	idChunk     int
	excluded    map[relaylimits.Value]struct{}

	do func(Action)
}

func (c *relayCaps) set(to relaylimits.Limits, excluded []relaylimits.Value) {
	c.Limits = to
	clear(c.excluded)
	for _, v := range excluded[:min(len(excluded), relaylimits.MaxExcluded)] {
		c.excluded[v] = struct{}{}
	}
}

func (c *relayCaps) learn(k relaylimits.Kind, value int, reason string) bool {
	if !c.Narrow(k, value) {
		return false
	}
	if k == relaylimits.MaxValues {
		c.idsAtMost(value)
	}
	c.do(Learned{Kind: k, Value: value, Reason: reason})
	return true
}

func (c *relayCaps) idsAtMost(n int) { c.idChunk = min(c.idChunk, n) }

func (c *relayCaps) withoutNotes(x *request, text string) bool {
	if !slices.ContainsFunc(x.asks(), asksForNotes) {
		return false
	}
	news := c.learn(relaylimits.NoNotes, 1, text)
	if x.kind == reqLive && !c.liveNoNotes {
		c.liveNoNotes, news = true, true
	}
	return news
}

func (c *relayCaps) exclude(v relaylimits.Value) {
	if _, known := c.excluded[v]; known || len(c.excluded) >= relaylimits.MaxExcluded {
		return
	}
	c.excluded[v] = struct{}{}
	c.do(ExcludeValue{v})
}

// reshape returns filters for the same events within the limits of the relay. less reports that
// excluded values were omitted. The plan fills messages with live filters, and uses half a message for
// a query. Many relays refuse kind 1 only in queries, so live filters keep it until refused.
func (c *relayCaps) reshape(f nostr.Filter, live bool) (fs []nostr.Filter, less bool) {
	room, noNotes := max(relaylimits.MinMessage, c.MaxMessage), c.NoNotes
	if live {
		noNotes = noNotes && (c.liveNoNotes || c.NoLimitZero)
	} else {
		room /= 2
	}
	if f, less = c.withoutExcluded(f); filters.Empty(f) {
		return nil, less
	}
	switch {
	case noNotes && asksForNotes(f):
		f = filters.WithoutNotes(f)
	case c.NeedsKinds && kindless(f):
		f = filters.WithKinds(f)
	}
	if filters.Empty(f) {
		return nil, less
	}
	reqs, _, tooLarge := filters.Pack(filters.AtMost(f, c.MaxValues), room, 1)
	for _, r := range reqs {
		fs = append(fs, r...)
	}
	return fs, less || len(tooLarge) > 0
}

func (c *relayCaps) pack(fs []nostr.Filter) [][]nostr.Filter {
	var out []nostr.Filter
	for _, f := range fs {
		part, _ := c.reshape(f, true)
		out = append(out, part...)
	}
	reqs, _, _ := filters.Pack(out, c.MaxMessage, c.MaxFilters)
	return reqs
}

func (c *relayCaps) mustReshape(f nostr.Filter, live bool) bool {
	fs, less := c.reshape(f, live)
	return less || len(fs) != 1 || len(fs[0].Kinds) != len(f.Kinds)
}

// withoutExcluded returns f without the excluded values, and whether it had some.
func (c *relayCaps) withoutExcluded(f nostr.Filter) (out nostr.Filter, less bool) {
	if len(c.excluded) == 0 {
		return f, false
	}
	keep := func(list string, values []string) []string {
		is := func(v string) bool { _, ok := c.excluded[relaylimits.Value{Tag: list, Text: v}]; return ok }
		if !slices.ContainsFunc(values, is) {
			return values
		}
		less = true
		return slices.DeleteFunc(slices.Clone(values), is)
	}
	f.IDs, f.Authors = keep(filters.ListIDs, f.IDs), keep(filters.ListAuthors, f.Authors)
	for tag, values := range f.Tags {
		if kept := keep(tag, values); len(kept) < len(values) {
			f.Tags = filters.WithList(f.Tags, tag, kept)
		}
	}
	return f, less
}

func (c *relayCaps) byID(of nostr.Filter, ids []graspsync.EventID) nostr.Filter {
	f := filters.ByID(ids, len(ids))[0]
	kinds := nostr.Filter{Kinds: of.Kinds, Authors: of.Authors}
	switch {
	case c.NoNotes:
		kinds = filters.WithoutNotes(kinds)
	case c.NeedsKinds && kinds.Authors == nil:
		kinds = filters.WithKinds(kinds)
	case !c.NeedsKinds:
		return f
	}
	if !filters.Empty(kinds) {
		f.Kinds, f.Authors = kinds.Kinds, kinds.Authors
	}
	return f
}

func kindless(f nostr.Filter) bool { return f.Kinds == nil && f.Authors == nil && f.IDs == nil }

func asksForNotes(f nostr.Filter) bool {
	return f.Authors == nil && (f.Kinds == nil || slices.Contains(f.Kinds, graspsync.KindNote))
}
