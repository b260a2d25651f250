package sync

import (
	"context"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// intake is where connections hand over the events that relays send: known events are dropped, and
// the others wait for room, in which each relay host has a fixed part. It may be used by any goroutine.
type intake struct {
	most     int64 // bytes of one event: the part of a relay host
	absences *absences
	flights  *flights
	policy   *containedPolicy
	report   *report
	toVerify chan<- *job
	toSave   chan<- *job
	ended    <-chan struct{}
}

// delivery is an event as a connection hands it over.
type delivery struct {
	event graspsync.Event
	known bool // nothing else was read of it, see [wire.Message]
	src   graspsync.Source
	gap   bool
	size  int
	ids   *wire.IDChecker // of the connection
	token *token
	from  origin // nil: not known
}

// submit takes an event in. It blocks while the pipeline is full, and returns an
// error only if ctx ends.
func (k *intake) submit(ctx context.Context, d delivery) error {
	k.report.received.Add(1)
	id := d.event.ID
	dealtWith := k.absences.dealtWith(id)
	if d.known && !dealtWith { // any more: since it was read, what it depends on has come
		k.absences.refetch.again(d.src.Relay, []graspsync.EventID{id})
	}
	if d.known || dealtWith {
		k.report.duplicates.Add(1)
		k.flights.claims.settled(id)
		return nil
	}
	if !d.ids.Check(d.event) {
		d.from.forged("id does not match the event")
		return nil
	}
	j := &job{
		key: copyKey{id, d.event.Sig}, gap: d.gap, from: d.from, tokens: []*token{d.token},
		incoming: graspsync.Incoming{Event: d.event, Source: d.src},
		size:     min(held(d.event, d.size), k.most),
	}
	if d.from != nil {
		if j.stats = d.from.account(); j.stats.bad.has(j.key) {
			k.report.duplicates.Add(1)
			d.from.spend(int64(d.size)) // it is repeated
			return nil
		}
	}
	_, j.foreign = k.policy.foreign(d.event)
	if err := k.flights.admit(ctx, j); err != nil {
		return err
	}
	d.token.hold()
	if !k.flights.enter(j) {
		j.release()
		k.report.duplicates.Add(1)
		return nil
	}
	k.flights.claims.arrived(id)
	if k.absences.dealtWith(id) { // an earlier copy was dealt with while this one waited
		k.report.duplicates.Add(1)
		k.flights.settled(j, true)
		return nil
	}
	// From here on others may count on this copy, so that it goes its way even if
	// the connection it came by ends.
	next := k.toVerify
	if j.foreign {
		next = k.toSave
	}
	select {
	case next <- j:
	case <-k.ended:
		k.flights.settled(j, false)
	}
	return nil
}
