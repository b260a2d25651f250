package nostrlib

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/eventstore/codec/betterbinary"
	goeventstore "github.com/fiatjaf/eventstore"
	gonostr "github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/traits"
)

// backend is one of nostrlib's as package adapter/eventstore takes them. It calls that in the
// goroutine that it is called in, and reads an answer to its end before it gives any of it: a
// transaction that is open while somebody writes keeps the writer waiting.
type backend struct {
	eventstore.Store
	traits traits.Traits
}

var (
	_ goeventstore.Store   = backend{}
	_ goeventstore.Counter = backend{}
	_ traits.Teller        = backend{}
)

const (
	module = "fiatjaf.com/nostr/eventstore"
	// page is how many events a backend is asked for: it says by itself no number.
	page = 1000
	// exempt is how many it may be asked for where a second holds more than a page.
	exempt = 1 << 18
	// longestIndexed is the longest tag value that is in an index.
	longestIndexed = 100
)

// traitsOf tells backends by the package of their type, so that none has to be linked in for it. A struct that embeds a backend is
// taken for that one.
func traitsOf(db eventstore.Store) (traits.Traits, error) {
	t := traits.Traits{Page: page, Exempt: exempt, Indexed: indexed, Fits: fitsEncoded}
	switch v, kind := traits.Find(reflect.ValueOf(db), module, "boltdb", "lmdb", "slicestore"); kind {
	case "":
		return t, fmt.Errorf("%w: %T. Use boltdb, lmdb or slicestore of %s, or implement sync.Store and test that with package storetest",
			eventstoreadapter.ErrUnsupported, db, module)
	case "lmdb":
		t.Indexed, t.Folder = indexedByLmdb, v.FieldByName("Path").String()
	case "slicestore":
		t.Memory, t.Fits, t.Indexed = true, nil, func(string, string) bool { return true }
	}
	return t, nil
}

// indexed reports whether boltdb finds a tag: it keeps those with one letter, and looks for names of
// several by their first.
func indexed(name, value string) bool {
	return len(name) == 1 && value != "" && len(value) <= longestIndexed
}

// indexedByLmdb reports whether lmdb finds a tag. The keys of addresses are as long as these are, and
// a search, or a count, ends at the first key of another length: an event that names "repo-cli" hides those
// that name "repo".
func indexedByLmdb(name, value string) bool {
	return indexed(name, value) && strings.Count(value, ":") != 2
}

// measured is what of an event has a size of its own.
func measured(e *gonostr.Event) nostr.Event {
	out := nostr.Event{Tags: make(nostr.Tags, len(e.Tags)), Content: e.Content}
	for i, tag := range e.Tags {
		out.Tags[i] = nostr.Tag(tag)
	}
	return out
}

// fitsEncoded reports whether the binary form of boltdb and lmdb gives an event back. Where
// its tags need more than 64 KiB the form relies on each one being less than that, and gives
// something else, or nothing at all, where one is not.
func fitsEncoded(e *gonostr.Event) bool {
	size := 0
	for _, tag := range e.Tags {
		size += 3
		for _, v := range tag {
			size += 2 + len(v)
		}
	}
	if size+4 <= math.MaxUint16 {
		return true
	}
	given := measured(e)
	data := make([]byte, betterbinary.Measure(given))
	var got nostr.Event
	if betterbinary.Marshal(given, data) != nil || betterbinary.Unmarshal(data, &got) != nil {
		return false
	}
	return got.Content == given.Content && slices.EqualFunc(got.Tags, given.Tags, func(a, b nostr.Tag) bool { return slices.Equal(a, b) })
}

// Traits implements [traits.Teller].
func (b backend) Traits() traits.Traits { return b.traits }

// ask is a query. A filter that no event can match has no answer.
func (b backend) ask(f gonostr.Filter) ([]nostr.Event, error) {
	most := f.Limit
	if most <= 0 {
		most = b.traits.Page
	}
	if f.Until != nil && *f.Until == 0 {
		return b.first(f, most)
	}
	q, ok := ToFilter(f)
	if _, unnamed := f.Tags[""]; !ok || f.LimitZero || unnamed { // several would crash over such a name
		return nil, nil
	}
	if q.IDs != nil || q.GetTheoreticalLimit() >= most {
		return slices.Collect(b.Store.QueryEvents(q, most)), nil
	}
	// It gives one version of each address, be there more: it is to give all of them.
	q.Kinds = append(slices.Clip(q.Kinds), kindOfNone)
	for q.Limit = most; ; q.Limit *= 4 {
		var events []nostr.Event
		given := 0
		for e := range b.Store.QueryEvents(q, q.Limit) {
			if given++; e.Kind != kindOfNone { // somebody may use it, to hide others
				events = append(events, e)
			}
		}
		if given < q.Limit || len(events) >= most || q.Limit > exempt {
			return events[:min(len(events), most)], nil
		}
	}
}

// first is a query for events of the time zero. nostrlib can ask for nothing that ends there, but for
// what ends a second later.
func (b backend) first(f gonostr.Filter, most int) ([]nostr.Event, error) {
	end := gonostr.Timestamp(1)
	f.Until = &end
	for f.Limit = most; f.Limit <= exempt; f.Limit *= 4 {
		events, err := b.ask(f)
		if err != nil {
			return nil, err
		}
		if len(events) < f.Limit {
			events = slices.DeleteFunc(events, func(e nostr.Event) bool { return e.CreatedAt > 0 })
			return events[:min(len(events), most)], nil
		}
	}
	return nil, fmt.Errorf("%d events at the times 0 and 1", exempt)
}

// QueryEvents implements [goeventstore.Store].
func (b backend) QueryEvents(_ context.Context, f gonostr.Filter) (chan *gonostr.Event, error) {
	events, err := b.ask(f)
	if err != nil {
		return nil, err
	}
	ch := make(chan *gonostr.Event, len(events))
	for _, e := range events {
		if out, err := FromEvent(e); err == nil { // else it is none that anybody could ask for
			ch <- out.Event
		}
	}
	close(ch)
	return ch, nil
}

// CountEvents implements [goeventstore.Counter]. Most backends count all that they have for a
// filter with ids.
func (b backend) CountEvents(ctx context.Context, f gonostr.Filter) (int64, error) {
	if f.Until != nil && *f.Until == 0 {
		second := gonostr.Timestamp(1)
		f.Until = &second
		both, err := b.CountEvents(ctx, f)
		if err != nil {
			return 0, err
		}
		f.Since = &second
		later, err := b.CountEvents(ctx, f)
		return both - later, err
	}
	q, ok := ToFilter(f)
	if _, unnamed := f.Tags[""]; !ok || unnamed {
		return 0, nil
	}
	if q.IDs == nil {
		n, err := b.Store.CountEvents(q)
		return int64(n), err
	}
	// Nothing comes of a query that failed as well, and only a count says so.
	if _, err := b.Store.CountEvents(nostr.Filter{Kinds: []nostr.Kind{kindOfNone}}); err != nil {
		return 0, err
	}
	f.Limit, f.LimitZero = len(q.IDs), false
	events, err := b.ask(f)
	return int64(len(events)), err
}

// kindOfNone is a kind that nobody uses.
const kindOfNone = math.MaxUint16

// SaveEvent implements [goeventstore.Store].
func (b backend) SaveEvent(_ context.Context, e *gonostr.Event) error {
	out, err := toTheirs(e)
	if err != nil {
		return err
	}
	if err = b.Store.SaveEvent(out); errors.Is(err, eventstore.ErrDupEvent) {
		return goeventstore.ErrDupEvent
	}
	return err
}

// ReplaceEvent implements [goeventstore.Store]. Package adapter/eventstore never calls it.
func (b backend) ReplaceEvent(ctx context.Context, e *gonostr.Event) error {
	return b.SaveEvent(ctx, e)
}

// DeleteEvent implements [goeventstore.Store].
func (b backend) DeleteEvent(_ context.Context, e *gonostr.Event) error {
	id, err := graspsync.ParseEventID(e.ID)
	if err != nil {
		return err
	}
	return b.Store.DeleteEvent(nostr.ID(id))
}

func toTheirs(e *gonostr.Event) (nostr.Event, error) {
	parsed, err := graspsync.ParseEvent(e)
	if err != nil {
		return nostr.Event{}, err
	}
	return ToEvent(parsed)
}
