package filters

import (
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// RequestOverhead is the size of a REQ without filters and with a subscription id of 64 bytes. Each
// filter adds a comma.
const RequestOverhead = len(`["REQ",""]`) + 64

// Pack distributes filters over REQs by first fit, in the given order. maxBytes limits the whole
// REQ, and maxFilters the number of its filters. sizes are the sizes of the REQs in bytes.
//
// A filter that is too large is halved at its longest list of values until the parts fit. Parts
// that cannot be halved are returned in tooLarge. [Empty] filters are left out. The returned
// filters share lists with the given ones.
func Pack(fs []nostr.Filter, maxBytes, maxFilters int) (reqs [][]nostr.Filter, sizes []int, tooLarge []nostr.Filter) {
	items, tooLarge := fitting(fs, maxBytes-RequestOverhead)
	smallest := math.MaxInt
	for _, it := range items {
		smallest = min(smallest, it.size)
	}
	var open []int // indexes of REQs that have room
	for _, it := range items {
		at := slices.IndexFunc(open, func(r int) bool { return sizes[r]+it.size <= maxBytes })
		if at < 0 {
			at = len(open)
			open = append(open, len(reqs))
			reqs, sizes = append(reqs, nil), append(sizes, RequestOverhead)
		}
		r := open[at]
		reqs[r] = append(reqs[r], it.filter)
		sizes[r] += it.size
		// A REQ that is nearly full is not tried again, so that packing takes linear time.
		if sizes[r]+smallest > maxBytes || len(reqs[r]) == maxFilters {
			open = slices.Delete(open, at, at+1)
		}
	}
	return reqs, sizes, tooLarge
}

type sized struct {
	filter nostr.Filter
	size   int
}

func fitting(fs []nostr.Filter, room int) (items []sized, tooLarge []nostr.Filter) {
	items = make([]sized, 0, len(fs))
	var visit func(f nostr.Filter)
	visit = func(f nostr.Filter) {
		size := Size(f) + 1
		if size <= room {
			items = append(items, sized{f, size})
			return
		}
		a, b, ok := halve(f)
		if !ok {
			tooLarge = append(tooLarge, f)
			return
		}
		visit(a)
		visit(b)
	}
	for _, f := range fs {
		if !Empty(f) {
			visit(f)
		}
	}
	return items, tooLarge
}

// halve splits f at its longest list of values into two filters that together match the same
// events. It returns false if no list has two values.
func halve(f nostr.Filter) (a, b nostr.Filter, ok bool) {
	list, n := Longest(f, true)
	if n < 2 {
		return f, f, false
	}
	half := (n + 1) / 2
	return Part(f, list, 0, half), Part(f, list, half, n), true
}

// Size returns the length in bytes of the JSON of f. Plain values are not encoded, because there may
// be many.
func Size(f nostr.Filter) int {
	ids, authors, tags := f.IDs, f.Authors, f.Tags
	f.IDs, f.Authors, f.Tags = nil, nil, nil
	n := len(f.String())
	add := func(name string, values []string) {
		if n > len(`{}`) {
			n += len(`,`)
		}
		n += len(`"":[]`) + len(name) + max(0, len(values)-1)
		for _, v := range values {
			if n += len(v) + len(`""`); isEscaped(v) {
				n += len(nostr.Filter{Search: v}.String()) - len(`{"search":""}`) - len(v)
			}
		}
	}
	if len(ids) > 0 {
		add("ids", ids)
	}
	if len(authors) > 0 {
		add("authors", authors)
	}
	for name, values := range tags {
		add("#"+name, values)
	}
	return n
}

// isEscaped reports whether the JSON of s may differ from s.
func isEscaped(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return true
		}
	}
	return false
}
