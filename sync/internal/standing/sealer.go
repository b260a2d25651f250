package standing

import (
	"reflect"
	"slices"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Sealer makes Filters that share equal forms and lists.
type Sealer struct {
	shared func(graspsync.EventID) *graspsync.EventID
	forms  []*form
	lists  map[list]*values
}

// list identifies a list of values that several filters share.
type list struct {
	first *string
	n     int
}

// NewSealer returns a Sealer. shared returns an existing pointer for an id, or nil. The pointed-to
// ids must not change.
func NewSealer(shared func(graspsync.EventID) *graspsync.EventID) *Sealer {
	return &Sealer{shared: shared, lists: make(map[list]*values)}
}

// Seal returns Filters for fs. The lists of fs must not change while the Sealer is used, because it
// compares them by address.
func (s *Sealer) Seal(fs []nostr.Filter) Filters {
	out := make(Filters, len(fs))
	for i, f := range fs {
		tag := longestTag(f.Tags)
		if tag != "" {
			out[i].values = s.values(f.Tags[tag])
		}
		out[i].form = s.form(f, tag)
	}
	return out
}

// longestTag returns the one-letter tag with the most values, "" if none.
func longestTag(tags nostr.TagMap) (tag string) {
	most := -1
	for name, vs := range tags {
		if letter(name) >= 0 && (len(vs) > most || len(vs) == most && name < tag) {
			tag, most = name, len(vs)
		}
	}
	return tag
}

func (s *Sealer) form(f nostr.Filter, tag string) *form {
	rest := make(nostr.TagMap, len(f.Tags))
	for name, vs := range f.Tags {
		if tag == "" || name != tag {
			rest[name] = append([]string{}, vs...) // an empty list matches no event, nil or not
		}
	}
	if f.Tags = nil; len(rest) > 0 {
		f.Tags = rest
	}
	for _, known := range s.forms {
		if known.tag == tag && reflect.DeepEqual(known.rest, f) {
			return known
		}
	}
	made := &form{rest: f.Clone(), tag: tag}
	s.forms = append(s.forms, made)
	return made
}

func (s *Sealer) values(vs []string) *values {
	at := list{n: len(vs)}
	if len(vs) > 0 {
		at.first = &vs[0]
	}
	made, ok := s.lists[at]
	if !ok {
		made = s.sealed(vs)
		s.lists[at] = made
	}
	return made
}

func (s *Sealer) sealed(vs []string) *values {
	v := &values{ids: make([]*graspsync.EventID, 0, len(vs))}
	for _, text := range vs {
		id, ok := parse(text)
		if !ok {
			return textsOf(vs)
		}
		at := s.shared(id)
		if at == nil {
			own := id
			at = &own
		}
		v.ids = append(v.ids, at)
	}
	if !slices.IsSortedFunc(v.ids, compareIDs) {
		slices.SortFunc(v.ids, compareIDs)
	}
	return v
}

func textsOf(vs []string) *values {
	sorted := slices.Sorted(slices.Values(vs))
	v := &values{texts: make([]unique.Handle[string], len(vs))}
	for i, text := range sorted {
		v.texts[i] = unique.Make(text)
	}
	return v
}
