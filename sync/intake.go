package sync

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// intake is where connections hand over what relays send: what is known is dropped, who has it
// pays for the rest, and waits for room. It may be used by any goroutine.
type intake struct {
	most      int64 // bytes in flight
	absences  *absences
	flights   *flights
	relevance *relevance
	report    *report
	toVerify  chan<- *job
	ended     <-chan struct{}
}

// delivery is an event as a connection hands it over.
type delivery struct {
	event graspsync.Event
	known bool // nothing else was read of it, see [wire.Message]
	src   graspsync.Source
	gap   bool
	size  int
	ids   *wire.IDChecker // of who delivers
	token *token
	from  origin // nil: nobody whom we know
	// current: it came live after what the relay had stored.
	current bool
	// Of history: it was asked for as what refers to something of ours; and in that number.
	ours, asked bool
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
		if stats, _ := d.from.account(); stats.bad.has(j.key) {
			k.report.duplicates.Add(1)
			d.from.spend(int64(d.size)) // it is repeated
			return nil
		}
		if look, err := k.pay(ctx, d, j); err != nil || !look {
			return err
		}
	}
	if err := k.flights.admit(ctx, j); err != nil {
		j.refund(1)
		return err
	}
	d.token.hold()
	if !k.flights.enter(j) {
		j.refund(1)
		k.flights.release(j)
		k.report.duplicates.Add(1)
		return nil
	}
	k.flights.claims.arrived(id)
	if k.absences.dealtWith(id) { // an earlier copy was dealt with while this one waited
		k.report.duplicates.Add(1)
		j.refund(1)
		k.flights.settled(j, true)
		return nil
	}
	// From here on others may count on this copy, so that it goes its way even if
	// the connection it came by ends.
	select {
	case k.toVerify <- j:
	case <-k.ended:
		k.flights.settled(j, false)
	}
	return nil
}

// slowMost is for how long the reading of a relay waits for what refers to ours and may
// be of use, however much of it comes. Then the events that find no allowance are left out.
const slowMost = time.Minute

// pay takes what an event costs until it turns out to be of use, and reports whether it
// is to be looked at. History that was asked for is, on credit. A live event that is not
// for us, or is expected to be refused, does not wait for its turn, or all that comes
// behind it on the connection would: it is left out, and caught up with later.
func (k *intake) pay(ctx context.Context, d delivery, j *job) (look bool, err error) {
	stats, signs := d.from.account()
	w := stats.work
	j.stats, j.ours = stats, d.ours || k.relevance.concerns(d.event)
	j.lane = laneOf(j.ours)
	if d.asked {
		j.cost = w.owe(j.size, j.ours)
		return true, nil
	}
	live := d.src.Kind == graspsync.Live
	essential := false
	if live && j.ours {
		essential = k.relevance.essential(d.event)
		j.recorded = true
		for _, owner := range k.relevance.about(d.event) {
			j.category = categoryOf(d.event.Kind, owner)
			if j.lane = w.laneFor(d.event.PubKey, j.category); j.lane == trustedLane {
				break
			}
		}
	}
	patient := j.lane == trustedLane && (essential || !signs.slowFor(slowMost))
	cost, from, wait := w.try(j.size, j.lane, live)
	if wait > 0 && d.current && !patient && w.skip(int64(d.size)) {
		k.report.drop("unread", 1)
		signs.skipped()
		return false, nil
	}
	if wait > 0 {
		signs.slowed()
		if cost, from, err = w.take(ctx, j.size, j.lane, live); err != nil {
			return false, err
		}
	}
	j.cost, j.lane = cost, from
	return true, nil
}
