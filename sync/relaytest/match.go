package relaytest

import (
	"github.com/nbd-wtf/go-nostr"
)

// matcher is a filter prepared for many events. It is a second implementation of NIP-01 and shares
// no code with the client on purpose.
type matcher struct {
	ids, authors map[string]struct{} // nil: any
	kinds        map[int]struct{}    // nil: any
	tags         map[string]map[string]struct{}
	since, until *nostr.Timestamp
}

func newMatcher(f nostr.Filter) *matcher {
	m := &matcher{
		ids:     set(f.IDs),
		authors: set(f.Authors),
		kinds:   set(f.Kinds),
		since:   f.Since,
		until:   f.Until,
	}
	for name, values := range f.Tags {
		if m.tags == nil {
			m.tags = make(map[string]map[string]struct{}, len(f.Tags))
		}
		m.tags[name] = set(values)
	}
	return m
}

// set returns nil for nil, which means no condition. Nothing meets an empty set.
func set[T comparable](values []T) map[T]struct{} {
	if values == nil {
		return nil
	}
	m := make(map[T]struct{}, len(values))
	for _, v := range values {
		m[v] = struct{}{}
	}
	return m
}

func has[T comparable](m map[T]struct{}, v T) bool {
	if m == nil {
		return true
	}
	_, ok := m[v]
	return ok
}

func (m *matcher) match(ev *nostr.Event) bool {
	if m.since != nil && ev.CreatedAt < *m.since || m.until != nil && ev.CreatedAt > *m.until {
		return false
	}
	if !has(m.ids, ev.ID) || !has(m.kinds, ev.Kind) || !has(m.authors, ev.PubKey) {
		return false
	}
	for name, values := range m.tags {
		if values != nil && !tagged(ev, name, values) {
			return false
		}
	}
	return true
}

func tagged(ev *nostr.Event, name string, values map[string]struct{}) bool {
	for _, tag := range ev.Tags {
		if !indexed(tag) || tag[0] != name {
			continue
		}
		if _, ok := values[tag[1]]; ok {
			return true
		}
	}
	return false
}

// indexed reports whether filters can ask for a tag: its name is a single letter, and it has a
// value. Only the first value counts.
func indexed(tag nostr.Tag) bool {
	if len(tag) < 2 || len(tag[0]) != 1 {
		return false
	}
	c := tag[0][0]
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
