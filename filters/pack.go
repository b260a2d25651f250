package filters

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"
)

// What [Pack] goes by where a relay says nothing.
const (
	DefaultMaxBytes   = 64 << 10
	DefaultMaxFilters = 20
)

// RequestOverhead is what a REQ adds to its filters, in bytes: brackets, label
// and a subscription id of 64 bytes. Each filter adds its comma.
const RequestOverhead = len(`["REQ",""]`) + 64

// Pack spreads filters over as few REQs as first fit finds: each goes into the
// first REQ that has room, in the order given. maxBytes bounds the whole REQ
// message with a subscription id of 64 bytes, maxFilters the filters in it; below
// 1 they mean [DefaultMaxBytes] and [DefaultMaxFilters].
//
// A filter that is too large for a REQ of its own is halved at its longest list
// of values until the parts fit. Parts that can't be halved any further are
// returned in tooLarge. Filters that are [Empty] are left out.
//
// The filters returned share their lists with those given.
func Pack(fs []nostr.Filter, maxBytes, maxFilters int) (reqs [][]nostr.Filter, tooLarge []nostr.Filter) {
	reqs, _, tooLarge = PackSized(fs, maxBytes, maxFilters)
	return reqs, tooLarge
}

// PackSized is [Pack], and says besides how many bytes each REQ takes.
func PackSized(fs []nostr.Filter, maxBytes, maxFilters int) (reqs [][]nostr.Filter, sizes []int, tooLarge []nostr.Filter) {
	if maxBytes < 1 {
		maxBytes = DefaultMaxBytes
	}
	if maxFilters < 1 {
		maxFilters = DefaultMaxFilters
	}
	items, tooLarge := fitting(fs, maxBytes-RequestOverhead)
	smallest := math.MaxInt
	for _, it := range items {
		smallest = min(smallest, it.size)
	}
	var open []bin // those that may still take one, in the order of reqs
	var in, count []int
	for _, it := range items {
		i := slices.IndexFunc(open, func(b bin) bool { return b.room >= it.size })
		if i < 0 {
			i = len(open)
			open = append(open, bin{req: len(sizes), room: maxBytes - RequestOverhead})
			sizes, count = append(sizes, RequestOverhead), append(count, 0)
		}
		b := &open[i]
		in = append(in, b.req)
		count[b.req]++
		sizes[b.req] += it.size
		b.room -= it.size
		// A bin that nothing fits into any more is not looked at again: packing
		// stays linear for filters of about one size, which ours are.
		if b.room < smallest || count[b.req] == maxFilters {
			open = slices.Delete(open, i, i+1)
		}
	}
	for _, n := range count { // no larger than need be: most are kept for long
		reqs = append(reqs, make([]nostr.Filter, 0, n))
	}
	for i, it := range items {
		reqs[in[i]] = append(reqs[in[i]], it.filter)
	}
	return reqs, sizes, tooLarge
}

// bin is a REQ that has room for more.
type bin struct {
	req  int // index
	room int // bytes
}

// sized is a filter with what it takes in a REQ, its comma included.
type sized struct {
	filter nostr.Filter
	size   int
}

// fitting halves what does not fit into room.
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

// halve splits f at its longest list of values, in bytes, into two filters that
// together match what f matches; since, until and limit stay as they are. It
// reports false, and no filters, if no list has two values. The halves share
// lists with f.
func halve(f nostr.Filter) (a, b nostr.Filter, ok bool) {
	const (
		ids = iota
		authors
		kinds
		tags
	)
	which, tag, longest := ids, "", 0
	consider := func(list int, name string, n, size int) {
		// Of lists of one size the first by name is taken: the order of a map is
		// another one each time.
		if n > 1 && (size > longest || size == longest && list == which && name < tag) {
			which, tag, longest = list, name, size
		}
	}
	consider(ids, "", len(f.IDs), sizeStrings(f.IDs))
	consider(authors, "", len(f.Authors), sizeStrings(f.Authors))
	consider(kinds, "", len(f.Kinds), sizeInts(f.Kinds))
	for name, values := range f.Tags {
		consider(tags, name, len(values), sizeStrings(values))
	}
	if longest == 0 {
		return nostr.Filter{}, nostr.Filter{}, false
	}
	a, b = f, f
	switch which {
	case ids:
		a.IDs, b.IDs = halves(f.IDs)
	case authors:
		a.Authors, b.Authors = halves(f.Authors)
	case kinds:
		a.Kinds, b.Kinds = halves(f.Kinds)
	case tags:
		first, second := halves(f.Tags[tag])
		a.Tags, b.Tags = withTag(f.Tags, tag, first), withTag(f.Tags, tag, second)
	}
	return a, b, true
}

func halves[T any](s []T) (first, second []T) {
	n := (len(s) + 1) / 2
	return s[:n:n], s[n:]
}

func withTag(tags nostr.TagMap, name string, values []string) nostr.TagMap {
	out := make(nostr.TagMap, len(tags))
	for k, v := range tags {
		out[k] = v
	}
	out[name] = values
	return out
}

// Size returns the length of f's JSON in bytes, exactly as the encoder of go-nostr
// writes it, without writing it.
func Size(f nostr.Filter) int {
	n := len("{}")
	fields := 0
	field := func(name, value int) {
		n += name + len(`"":`) + value
		fields++
	}
	if len(f.IDs) > 0 {
		field(len("ids"), sizeStrings(f.IDs))
	}
	if len(f.Kinds) > 0 {
		field(len("kinds"), sizeInts(f.Kinds))
	}
	if len(f.Authors) > 0 {
		field(len("authors"), sizeStrings(f.Authors))
	}
	if f.Since != nil {
		field(len("since"), sizeInt(int64(*f.Since)))
	}
	if f.Until != nil {
		field(len("until"), sizeInt(int64(*f.Until)))
	}
	if f.Limit != 0 || f.LimitZero {
		field(len("limit"), sizeInt(int64(f.Limit)))
	}
	if f.Search != "" {
		field(len("search"), sizeString(f.Search))
	}
	for name, values := range f.Tags {
		field(len("#")+len(name), sizeStrings(values)) // names are written unescaped
	}
	return n + max(fields-1, 0) // commas
}

func sizeStrings(values []string) int {
	n := len("[]") + max(len(values)-1, 0)
	for _, v := range values {
		n += sizeString(v)
	}
	return n
}

func sizeInts(values []int) int {
	n := len("[]") + max(len(values)-1, 0)
	for _, v := range values {
		n += sizeInt(int64(v))
	}
	return n
}

func sizeInt(v int64) int {
	var buf [20]byte
	return len(strconv.AppendInt(buf[:0], v, 10))
}

// sizeString returns the length of s as a JSON string, quotes included.
func sizeString(s string) int {
	n := len(s) + len(`""`)
	i := 0
	for i+8 <= len(s) && plain(s[i:i+8]) { // nearly all that we ask for is
		i += 8
	}
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"', c == '\\', c == '\t', c == '\r', c == '\n':
			n++
		case c < ' ':
			n += len(`\u0000`) - 1
		case c >= utf8.RuneSelf:
			r, width := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && width == 1 || r == '\u2028' || r == '\u2029' {
				n += len(`\u0000`) - width
			}
			i += width - 1
		}
	}
	return n
}

// plain reports whether eight bytes are written as they are: of none the high bit is set, and
// none is below a space, a quote or a backslash. They are looked at all at once, as one number.
func plain(s string) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	_ = s[7]
	v := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	control := v - ones*' '    // borrows where a byte is less
	quote := v ^ ones*'"'      // zero where it is one
	backslash := v ^ ones*'\\' // likewise
	return (v|control|(quote-ones)|(backslash-ones))&highs == 0
}
