package eventstoreadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// database answers as the SQL backends do, and fails where they do.
type database struct {
	name   string // of the backend's package
	events []*nostr.Event

	QueryLimit, QueryAuthorsLimit, QueryKindsLimit, QueryTagsLimit int

	queries, counts int
}

func newDatabase(name string) *database {
	return &database{name: name, QueryLimit: 100, QueryAuthorsLimit: 500, QueryKindsLimit: 10, QueryTagsLimit: 10}
}

func (*database) Init() error { return nil }
func (*database) Close()      {}

func (b *database) SaveEvent(_ context.Context, e *nostr.Event) error {
	b.events = append(b.events, e)
	slices.SortFunc(b.events, order)
	return nil
}

func (*database) DeleteEvent(context.Context, *nostr.Event) error  { return errors.ErrUnsupported }
func (*database) ReplaceEvent(context.Context, *nostr.Event) error { return errors.ErrUnsupported }

func (b *database) QueryEvents(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	b.queries++
	limit := f.Limit
	if limit < 1 || limit > b.QueryLimit {
		limit = b.QueryLimit
	}
	found, err := b.find(f)
	ch := make(chan *nostr.Event, limit)
	for _, e := range found[:min(len(found), limit)] {
		ch <- e
	}
	close(ch)
	return ch, err
}

func (b *database) CountEvents(_ context.Context, f nostr.Filter) (int64, error) {
	b.counts++
	found, err := b.find(f)
	return int64(len(found)), err
}

// find is what the conditions find that a filter is made into.
func (b *database) find(f nostr.Filter) (found []*nostr.Event, err error) {
	tags := 0
	for _, values := range f.Tags {
		tags += len(values)
		if len(values) == 0 || len(values) > 1 && b.name == "mysql" {
			return nil, fmt.Errorf("%d values for a condition", len(values))
		}
		for _, v := range values {
			switch {
			case b.name == "sqlite3" && len(v) > 50_000-2:
				return nil, errors.New("LIKE or GLOB pattern too complex")
			case b.name == "postgresql" && (!utf8.ValidString(v) || strings.Contains(v, "\x00")):
				return nil, errors.New("invalid byte sequence")
			}
		}
	}
	if len(f.IDs) > 500 || len(f.Authors) > b.QueryAuthorsLimit || len(f.Kinds) > b.QueryKindsLimit || tags > b.QueryTagsLimit {
		return nil, errors.New("too many")
	}
	for _, at := range []*nostr.Timestamp{f.Since, f.Until} {
		if b.name == "postgresql" && at != nil && *at > math.MaxInt32 {
			return nil, errors.New("out of range for type integer")
		}
	}
	for _, e := range b.events {
		if (len(f.IDs) == 0 || slices.Contains(f.IDs, e.ID)) && (len(f.Authors) == 0 || slices.Contains(f.Authors, e.PubKey)) &&
			(len(f.Kinds) == 0 || slices.Contains(f.Kinds, e.Kind)) && (f.Since == nil || e.CreatedAt >= *f.Since) &&
			(f.Until == nil || e.CreatedAt <= *f.Until) && b.tagged(f, e) {
			found = append(found, e)
		}
	}
	return found, nil
}

func (b *database) tagged(f nostr.Filter, e *nostr.Event) bool {
	text, _ := json.Marshal(e.Tags)
	for _, values := range f.Tags {
		if !slices.ContainsFunc(values, func(v string) bool {
			if b.name == "postgresql" {
				return slices.ContainsFunc(e.Tags, func(t nostr.Tag) bool { return len(t) > 1 && len(t[0]) == 1 && t[1] == v })
			}
			return like(strings.ToLower(string(text)), strings.ToLower(v))
		}) {
			return false
		}
	}
	return true
}

// like reports whether a text has a value, in which a backslash is nothing by itself, and any character is one for _.
func like(text, value string) bool {
	value = strings.ReplaceAll(value, `\`, "")
	for i := range len(text) - len(value) + 1 {
		same := true
		for j := range len(value) {
			same = same && (value[j] == '_' || value[j] == text[i+j])
		}
		if same {
			return true
		}
	}
	return false
}

// over is a Store over a backend of which so much is known.
func over(t *testing.T, db eventstore.Store, p profile) *Store {
	t.Helper()
	s, err := New(db, Config{NoSync: true})
	require.NoError(t, err)
	s.reader, s.writer = newGuard(db, p, nil, s.uses), newGuard(db, p, nil, s.uses)
	return s
}

// asked is what a client gets.
func asked(t *testing.T, s *Store, f nostr.Filter) []string {
	t.Helper()
	ch, err := s.Backend().QueryEvents(t.Context(), f)
	require.NoError(t, err, f)
	ids := []string{}
	for e := range ch {
		ids = append(ids, e.ID)
	}
	return ids
}

// some is what the events of these tests are made of.
var some = nostr.Event{PubKey: strings.Repeat("a1", 32), Kind: 1, CreatedAt: 1_700_000_000, Sig: strings.Repeat("0", 128)}

// save stores an event like e that is no other one.
func (b *database) save(t *testing.T, e nostr.Event) *nostr.Event {
	t.Helper()
	e.Content = fmt.Sprint(len(b.events))
	e.ID = e.GetID()
	require.NoError(t, b.SaveEvent(t.Context(), &e))
	return &e
}

// What a client asked for was put to the database as it was: for a value that JSON writes otherwise it found nothing, and it fails
// over long lists, empty ones, and what it can't read.
func TestWhatSQLDoesNotLookUp(t *testing.T) {
	for _, name := range []string{"sqlite3", "mysql", "postgresql"} {
		db := newDatabase(name)
		s := over(t, db, ofSQL(name, reflect.ValueOf(*db)))
		values := []string{"a&b", "<x>", `say "hi"`, `back\slash`, "100%", "a_b", "ü", "", "\n\x01", "x y", "bug", strings.Repeat("l", 60_000), "bug\n"}
		e := some
		var letters nostr.TagMap
		for i, v := range values {
			e.Tags = append(e.Tags, nostr.Tag{"t", v}, nostr.Tag{"alt", v}, nostr.Tag{string(rune('b' + i)), "x"})
			letters = withTag(letters, string(rune('b'+i)), []string{"x"})
		}
		is := []string{db.save(t, e).ID}
		for i := range 250 {
			other := some
			other.CreatedAt += 10 + nostr.Timestamp(i/50)
			other.Tags = nostr.Tags{{"q", "x y bug a_b 100% l"}, {"r", "a&b<x>"}}
			db.save(t, other)
		}
		kinds := make([]int, 12)
		for i := range kinds {
			kinds[i] = i
		}
		authors := make([]string, 600)
		for i := range authors {
			authors[i] = fmt.Sprintf("%064x", i)
		}
		authors = append(authors, some.PubKey)
		until := some.CreatedAt
		for what, f := range map[string]nostr.Filter{
			"12 kinds":                         {Kinds: kinds, Until: &until},
			"12 values":                        {Tags: nostr.TagMap{"t": values}, Limit: 5},
			"two values":                       {Tags: nostr.TagMap{"t": {"bug", "bugs"}}},
			"12 tags":                          {Tags: letters},
			"600 authors":                      {Authors: authors, Until: &until},
			"600 authors, 12 kinds, 12 values": {Authors: authors, Kinds: kinds, Tags: nostr.TagMap{"t": values}},
			"a tag without values":             {Tags: nostr.TagMap{"t": nil}, Until: &until},
			"until what is no time":            {Tags: nostr.TagMap{"t": {"bug"}}, Until: ptr[nostr.Timestamp](math.MaxUint32 + 1)},
			"until the last second":            {Tags: nostr.TagMap{"t": {"bug"}}, Until: ptr[nostr.Timestamp](math.MaxUint32 - 1)},
			"since before":                     {Tags: nostr.TagMap{"t": {"bug"}}, Since: ptr[nostr.Timestamp](math.MinInt64)},
		} {
			require.Equal(t, is, asked(t, s, f), "%s %s", name, what)
		}
		for what, f := range map[string]nostr.Filter{
			"no values": {Tags: nostr.TagMap{"t": {}}}, "no authors": {Authors: []string{}}, "no kinds": {Kinds: []int{}}, "no ids": {IDs: []string{}},
			"since after all":      {Since: ptr[nostr.Timestamp](math.MaxUint32 - 1)},
			"bytes":                {Tags: nostr.TagMap{"t": {"bug\xff"}}},
			"zero":                 {Tags: nostr.TagMap{"t": {"bug\x00"}}},
			"an author in letters": {Authors: []string{strings.ToUpper(some.PubKey)}},
			"none of it":           {LimitZero: true},
		} {
			require.Empty(t, asked(t, s, f), "%s %s", name, what)
			if f.LimitZero {
				continue
			}
			n, err := s.Backend().CountEvents(t.Context(), f)
			require.NoError(t, err, what)
			require.Zero(t, n, "%s %s", name, what)
		}
		for _, v := range values {
			for _, tag := range []string{"t", "alt"} {
				f := nostr.Filter{Tags: nostr.TagMap{tag: {v}}, Limit: 10}
				db.queries = 0
				require.Equal(t, is, asked(t, s, f), "%s #%s %.20q", name, tag, v)
				if tag == "t" && (name != "mysql" || !strings.ContainsAny(v, escapedForHTML)) {
					require.LessOrEqual(t, db.queries, 3, "%s %.20q", name, v)
				}
				n, err := s.Backend().CountEvents(t.Context(), f)
				require.NoError(t, err)
				require.EqualValues(t, 1, n, "%s #%s %.20q", name, tag, v)
			}
		}
	}
}

// An ordinary question is one query of the database, which may have to look at all that it has.
func TestWhatAnAnswerOfSQLCosts(t *testing.T) {
	for _, name := range []string{"sqlite3", "mysql", "postgresql"} {
		db := newDatabase(name)
		s := over(t, db, ofSQL(name, reflect.ValueOf(*db)))
		id, address := strings.Repeat("e1", 32), "30617:"+some.PubKey+":repo"
		var authors, ids []string
		for i := range 50 {
			authors = append(authors, fmt.Sprintf("%064x", i))
		}
		authors = append(authors, some.PubKey)
		for i := range 150 {
			e := some
			e.CreatedAt += nostr.Timestamp(i / 50) // a series
			e.Tags = nostr.Tags{{"e", id}, {"a", address}, {"d", "repo"}, {"p", some.PubKey}}
			ids = append(ids, db.save(t, e).ID)
		}
		e, earlier := some, some.CreatedAt-1
		e.CreatedAt, e.Tags = earlier, nostr.Tags{{"e", some.PubKey}, {"p", id}}
		db.save(t, e)
		for what, f := range map[string]nostr.Filter{
			"an author": {Authors: authors[50:]}, "authors": {Authors: authors, Limit: 20}, "kinds": {Kinds: []int{1, 2, 3}, Limit: 500},
			"authors and kinds": {Authors: authors, Kinds: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, Limit: 30},
			"e":                 {Tags: nostr.TagMap{"e": {id}}, Limit: 20}, "a": {Tags: nostr.TagMap{"a": {address}}, Limit: 20},
			"d": {Authors: authors[50:], Tags: nostr.TagMap{"d": {"repo"}}, Limit: 20}, "p": {Tags: nostr.TagMap{"p": {some.PubKey}}, Limit: 20},
			"since": {Tags: nostr.TagMap{"e": {id}}, Since: &some.CreatedAt, Limit: 20}, "few": {Until: &earlier, Limit: 20},
			"ids": {IDs: ids[:90]}, "ids and a limit": {IDs: ids[:90], Limit: 10},
		} {
			db.queries, db.counts = 0, 0
			require.NotEmpty(t, asked(t, s, f))
			require.Equal(t, []int{1, 0}, []int{db.queries, db.counts}, "%s %s", name, what)
		}
		db.queries = 0
		for f, n := range map[*nostr.Filter]int64{{}: 151, {Authors: authors, Kinds: []int{1}}: 151, {Kinds: []int{1, 2}, Until: &earlier}: 1} {
			db.counts = 0
			got, err := s.Backend().CountEvents(t.Context(), *f)
			require.NoError(t, err)
			require.Equal(t, n, got)
			require.Zero(t, db.queries, "%s %s", name, f)
			require.LessOrEqual(t, db.counts, 2, "%s %s: of events, and of records of versions", name, f)
		}
		n, err := s.Backend().CountEvents(t.Context(), nostr.Filter{Tags: nostr.TagMap{"e": {id}}})
		require.NoError(t, err)
		require.EqualValues(t, 150, n, "and not what has it in another tag")
		require.LessOrEqual(t, db.queries, 3)
	}
}

// An event that PostgreSQL can never store failed each time, and was tried again for ever.
func TestCaseC16_UnstorableIsRefused(t *testing.T) {
	at := func(when nostr.Timestamp) nostr.Event { return nostr.Event{CreatedAt: when} }
	content := func(s string) nostr.Event { return nostr.Event{CreatedAt: 1, Content: s} }
	tag := func(s string) nostr.Event { return nostr.Event{CreatedAt: 1, Tags: nostr.Tags{{"t", s}}} }
	for what, c := range map[string]struct {
		event   nostr.Event
		refused []string
	}{
		"ordinary":                  {content("x\u00fc\U0001f600"), nil},
		"U+0000 in the content":     {content("a\x00b"), []string{"postgresql"}},
		"U+0000 in a tag":           {tag("a\x00b"), []string{"postgresql"}},
		"no UTF-8 in the content":   {content("\xff"), []string{"postgresql", "mysql"}},
		"no UTF-8 in a tag":         {tag("\xff"), []string{"postgresql", "mysql", "sqlite3"}},
		"created_at above 2^31":     {at(1<<31 + 5), []string{"postgresql", "mysql"}},
		"created_at beyond 32 bits": {at(1 << 32), []string{"postgresql", "mysql", "sqlite3"}},
		"a long content":            {content(strings.Repeat("x", 65_536)), []string{"mysql"}},
	} {
		for _, name := range []string{"sqlite3", "mysql", "postgresql"} {
			db := newDatabase(name)
			s := over(t, db, ofSQL(name, reflect.ValueOf(*db)))
			e := c.event
			e.Kind, e.PubKey, e.Sig = 1, some.PubKey, strings.Repeat("0", 128)
			e.ID = e.GetID()
			parsed, err := graspsync.ParseEvent(&e)
			require.NoError(t, err)
			out, err := s.Save(t.Context(), []graspsync.Incoming{{Event: parsed}})
			require.NoError(t, err)
			if !slices.Contains(c.refused, name) {
				require.Equal(t, graspsync.Stored, out[0].Result, "%s %s", name, what)
				continue
			}
			require.Equal(t, graspsync.Refused, out[0].Result, "%s %s", name, what)
			require.ErrorIs(t, out[0].Err, ErrUnstorable)
			require.Empty(t, db.events)
		}
	}
}
