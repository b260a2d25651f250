package main

import (
	"errors"
	"fmt"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip77"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy/storage/vector"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
)

// measurePresent measures our client with NIP-77 and a relay that has few or no new events. The
// client reads the Store as after a restart. The cost of a daily comparison without restart is
// printed separately.
func measurePresent(r *run) error {
	d, relays, err := startHub(r, r.pick(100_000, quickEvents), 1)
	if err != nil {
		return err
	}
	defer relays.close()
	client := oursNIP77.atCanned()
	whole, err := measureAll(r, relays, first(client, d))
	if err != nil {
		return err
	}
	for _, part := range []struct {
		what, work string
		but        int // every but-th event is missing
		resync     bool
	}{
		{"99 % present", "present 99", 100, false},
		{"100 % present", "present 100", 0, false},
		{"100 % present, without a restart", "present again", 0, true},
	} {
		var samples []sample
		var need int64
		for range max(1, r.count) {
			s := memstore.New()
			missing, err := fill(r.ctx, s, d, part.but)
			if err != nil {
				return err
			}
			if need, err = needed(r, s, d); err != nil {
				return err
			}
			a := first(client, d)
			a.store, a.work, a.resync = newStore(s, missing), part.work, part.resync
			m, err := a.run(r, relays)
			if err != nil {
				return fmt.Errorf("%s: %w", part.what, err)
			}
			samples = append(samples, m)
		}
		m := medianOf(samples)
		if part.resync {
			r.atMost(part.what+": CPU of comparing everything once more", m.pass.Seconds(), "s", 0.2)
			continue
		}
		live := m.usage.Traffic[labelLive].Bytes
		r.atMost(part.what+": CPU", m.cpu.Seconds(), "s", 0.2)
		r.atMost(part.what+": bytes : what NIP-77 needs, without live subscriptions", float64(m.usage.In+m.usage.Out-live)/float64(need), "", 1.1)
		if part.but == 0 {
			r.atMost(part.what+": time until the last answer : first catch-up", ratio(m.last, whole[0].saved), "", 0.01)
			r.atMost(part.what+": CPU : first catch-up", ratio(m.cpu, whole[0].cpu), "", 0.01)
		}
		r.figure(part.what+": CPU until it dials, for it reads its Store first", m.read.Seconds(), "s")
		r.figure(part.what+": what NIP-77 needs", float64(need)/1e6, "MB")
		r.figure(part.what+": until the last answer", m.last.Seconds(), "s")
		r.explain(part.what, m)
		r.explainTraffic(part.what, m.usage.Traffic)
	}
	r.explain("first catch-up", whole[0])
	return nil
}

// needed returns the message bytes of one complete reconciliation by go-nostr on both sides, plus
// the bytes for the missing events, with a page of ids in each REQ.
func needed(r *run, s relaysync.Store, d *dataset) (int64, error) {
	ours, theirs, sizes := vector.New(), vector.New(), make(map[string]int64)
	for stamp, err := range s.Keys(r.ctx, nostr.Filter{}) {
		if err != nil {
			return 0, err
		}
		ours.Insert(stamp.CreatedAt, stamp.ID.String())
	}
	for ev, err := range d.events() {
		if err != nil {
			return 0, err
		}
		theirs.Insert(ev.CreatedAt, ev.Event.ID)
		sizes[ev.Event.ID] = int64(len(ev.String()))
	}
	ours.Seal()
	theirs.Seal()
	total, missing, err := reconcile(ours, theirs)
	if err != nil {
		return 0, err
	}
	for _, id := range missing {
		total += int64(len(`["EVENT","id",]`)) + sizes[id]
		total += int64(len(`"",`) + len(id))
	}
	total += int64((len(missing)+maxPage-1)/maxPage) * int64(len(`["REQ","id",{"ids":[]}]["EOSE","id"]["CLOSE","id"]`))
	return total, nil
}

// reconcile returns the bytes of both sides and the ids missing from ours.
func reconcile(ours, theirs *vector.Vector) (bytes int64, missing []string, err error) {
	const id = "id"
	client, server := negentropy.New(ours, khatruFrame), negentropy.New(theirs, khatruFrame)
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for haves, lacks := client.Haves, client.HaveNots; haves != nil || lacks != nil; {
			select {
			case _, ok := <-haves:
				if !ok {
					haves = nil
				}
			case id, ok := <-lacks:
				if !ok {
					lacks = nil
					continue
				}
				missing = append(missing, id)
			}
		}
	}()
	message := client.Start()
	bytes = int64(len(nip77.OpenEnvelope{SubscriptionID: id, Message: message}.String()))
	for range maxRounds {
		answer, err := server.Reconcile(message)
		if err != nil {
			return 0, nil, err
		}
		bytes += int64(len(nip77.MessageEnvelope{SubscriptionID: id, Message: answer}.String()))
		if message, err = client.Reconcile(answer); err != nil {
			return 0, nil, err
		}
		if message == "" { // Reconcile has closed the channels
			bytes += int64(len(nip77.CloseEnvelope{SubscriptionID: id}.String()))
			<-collected
			return bytes, missing, nil
		}
		bytes += int64(len(nip77.MessageEnvelope{SubscriptionID: id, Message: message}.String()))
	}
	return 0, nil, errors.New("a reconciliation does not end")
}

// maxRounds is more than any reconciliation needs.
const maxRounds = 1000
