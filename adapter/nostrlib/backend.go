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
	"github.com/graspsync/graspsync/internal/backendcaps"
)

// backend is a backend of nostrlib for go-nostr. It reads an answer to its end first, because an open read
// transaction blocks writers.
type backend struct {
	eventstore.Store
	traits backendcaps.Caps
}

var (
	_ goeventstore.Store    = backend{}
	_ goeventstore.Counter  = backend{}
	_ backendcaps.Describer = backend{}
)

const (
	module = "fiatjaf.com/nostr/eventstore"
	// page is in events of one query. Backends of nostrlib have no limit.
	page = 1000
	// exempt is the same for a second.
	exempt = 1 << 18
	// longestIndexed is in bytes of indexed tag values.
	longestIndexed = 100
)

// traitsOf identifies a backend by the package path of its type, so that no backend is linked in.
func traitsOf(db eventstore.Store) (backendcaps.Caps, error) {
	t := backendcaps.Caps{Page: page, Exempt: exempt, Indexed: indexed, Fits: fitsEncoded}
	switch v, kind := backendcaps.Find(reflect.ValueOf(db), module, "boltdb", "lmdb", "slicestore"); kind {
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

// indexed reports whether boltdb finds events by a tag. It looks up long names by their first letter.
func indexed(name, value string) bool {
	return len(name) == 1 && value != "" && len(value) <= longestIndexed
}

// indexedByLmdb is indexed for lmdb, where a search ends at the first key of another length, so that an
// event that names "repo-cli" hides events that name "repo".
func indexedByLmdb(name, value string) bool {
	return indexed(name, value) && strings.Count(value, ":") != 2
}

// fitsEncoded reports whether the encoding of boltdb and lmdb preserves an event. It loses tags
// beyond 64 KiB.
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
	given := nostr.Event{Tags: tagsOf[nostr.Tag](e.Tags), Content: e.Content}
	data := make([]byte, betterbinary.Measure(given))
	var got nostr.Event
	if betterbinary.Marshal(given, data) != nil || betterbinary.Unmarshal(data, &got) != nil {
		return false
	}
	return got.Content == given.Content && slices.EqualFunc(got.Tags, given.Tags, func(a, b nostr.Tag) bool { return slices.Equal(a, b) })
}

func (b backend) Caps() backendcaps.Caps { return b.traits }

// filterOf is ToFilter for a backend, because until=0 is no bound, and some panic on an empty tag name.
func filterOf(f gonostr.Filter) (q nostr.Filter, ok bool) {
	if f.Until != nil && *f.Until == 0 {
		one := gonostr.Timestamp(1)
		f.Until = &one
	}
	if _, unnamed := f.Tags[""]; unnamed {
		return q, false
	}
	return ToFilter(f)
}

func (b backend) ask(f gonostr.Filter) []nostr.Event {
	most := f.Limit
	if most <= 0 {
		most = b.traits.Page
	}
	q, ok := filterOf(f)
	if !ok || f.LimitZero {
		return nil
	}
	if q.IDs != nil || q.GetTheoreticalLimit() >= most {
		return slices.Collect(b.Store.QueryEvents(q, most))
	}
	// For replaceable kinds alone, backends return one version of each address. An unused kind
	// prevents that.
	q.Kinds = append(slices.Clip(q.Kinds), kindOfNone)
	for q.Limit = most; ; q.Limit *= 4 {
		var events []nostr.Event
		given := 0
		for e := range b.Store.QueryEvents(q, q.Limit) {
			if given++; e.Kind != kindOfNone { // published to hide other events
				events = append(events, e)
			}
		}
		if given < q.Limit || len(events) >= most || q.Limit > exempt {
			return events[:min(len(events), most)]
		}
	}
}

func (b backend) QueryEvents(_ context.Context, f gonostr.Filter) (chan *gonostr.Event, error) {
	events := b.ask(f)
	ch := make(chan *gonostr.Event, len(events))
	for _, e := range events {
		if out, err := FromEvent(e); err == nil { // no client can ask for an event without id
			ch <- out.Event
		}
	}
	close(ch)
	return ch, nil
}

// CountEvents implements [goeventstore.Counter]. For filters with ids most backends count too many.
func (b backend) CountEvents(ctx context.Context, f gonostr.Filter) (int64, error) {
	q, ok := filterOf(f)
	if !ok {
		return 0, nil
	}
	if q.IDs == nil {
		n, err := b.Store.CountEvents(q)
		return int64(n), err
	}
	// A failed query looks like an empty answer. Only a count returns the error.
	if _, err := b.Store.CountEvents(nostr.Filter{Kinds: []nostr.Kind{kindOfNone}}); err != nil {
		return 0, err
	}
	f.Limit, f.LimitZero = len(q.IDs), false
	return int64(len(b.ask(f))), nil
}

// kindOfNone is a kind that no event has.
const kindOfNone = math.MaxUint16

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
