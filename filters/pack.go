package filters

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"
)

// Limits that [Pack] uses for a relay that publishes none.
const (
	DefaultMaxBytes   = 64 << 10
	DefaultMaxFilters = 20
)

// RequestOverhead is the size of a REQ without filters, in bytes. It includes a subscription id of
// 64 bytes. Each filter adds a comma.
const RequestOverhead = len(`["REQ",""]`) + 64

// Pack distributes filters over REQs by first fit. Each filter, in the given order, goes into the
// first REQ that has room. maxBytes limits the whole REQ message with a subscription id of 64
// bytes, and maxFilters the number of its filters. Values below 1 mean [DefaultMaxBytes] and
// [DefaultMaxFilters].
//
// A filter that is too large for one REQ is halved at its longest list of values until the parts
// fit. Parts that cannot be halved further are returned in tooLarge. Filters that are [Empty] are
// left out.
//
// The returned filters share lists with the given ones.
func Pack(fs []nostr.Filter, maxBytes, maxFilters int) (reqs [][]nostr.Filter, tooLarge []nostr.Filter) {
	reqs, _, tooLarge = PackSized(fs, maxBytes, maxFilters)
	return reqs, tooLarge
}

// PackSized is [Pack], and also returns the size of each REQ in bytes.
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
	var open []bin // REQs that have room, in the order of reqs
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
		// A REQ that is nearly full is not tried again, so that packing filters of similar size
		// takes linear time.
		if b.room < smallest || count[b.req] == maxFilters {
			open = slices.Delete(open, i, i+1)
		}
	}
	for _, n := range count { // exact capacity, because most of these slices live long
		reqs = append(reqs, make([]nostr.Filter, 0, n))
	}
	for i, it := range items {
		reqs[in[i]] = append(reqs[in[i]], it.filter)
	}
	return reqs, sizes, tooLarge
}

// bin is a REQ that has room for more filters.
type bin struct {
	req  int // index of the REQ
	room int // free bytes
}

// sized is a filter with its size in a REQ, including the comma.
type sized struct {
	filter nostr.Filter
	size   int
}

// fitting halves the filters that do not fit into room.
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

// halve splits f at its longest list of values, in bytes, into two filters that together match the
// same events. Since, until and limit do not change. It returns false if no list has two values.
// The halves share lists with f.
func halve(f nostr.Filter) (a, b nostr.Filter, ok bool) {
	list, n, longest := "", 0, 0
	consider := func(name string, count, size int) {
		// Of lists of equal size the first name in order is taken, because the iteration order of a
		// map is random.
		if count > 1 && (size > longest || size == longest && name < list) {
			list, n, longest = name, count, size
		}
	}
	consider(ListIDs, len(f.IDs), sizeStrings(f.IDs))
	consider(ListAuthors, len(f.Authors), sizeStrings(f.Authors))
	consider(ListKinds, len(f.Kinds), sizeInts(f.Kinds))
	for name, values := range f.Tags {
		consider(name, len(values), sizeStrings(values))
	}
	if longest == 0 {
		return nostr.Filter{}, nostr.Filter{}, false
	}
	half := (n + 1) / 2
	return Part(f, list, 0, half), Part(f, list, half, n), true
}

// Size returns the length in bytes of the JSON that the encoder of go-nostr writes for f, without
// writing it.
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
		field(len("#")+len(name), sizeStrings(values)) // names are not escaped
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
	for i+8 <= len(s) && plain(s[i:i+8]) { // fast path for text without escapes
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

// plain reports whether eight bytes need no escape. It tests them as one number: no byte has its
// high bit set, is below a space, or is a quote or a backslash.
func plain(s string) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	_ = s[7]
	v := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	control := v - ones*' '    // borrows for a byte below a space
	quote := v ^ ones*'"'      // zero for a quote
	backslash := v ^ ones*'\\' // zero for a backslash
	return (v|control|(quote-ones)|(backslash-ones))&highs == 0
}
