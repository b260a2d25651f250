package sync_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// simModel is the expected content of the store: the newest versions of all published events of
// hosted repositories, without events deleted by their author.
type simModel struct {
	newest  map[string]*nostr.Event // by id, or by address if addressable
	all     map[string]*nostr.Event
	deleted map[string]bool            // ids
	before  map[string]nostr.Timestamp // addresses, and the time up to which they are deleted

	owners      map[string]string          // identifier -> owner
	maintainers map[string]map[string]bool // identifier -> authors whose states count
	ever        map[string]map[string]bool // identifier -> authors whose states counted at any time
	late        map[string]bool            // may arrive with the daily pass
	holders     map[string][]*simRelay     // honest relays that received it
	clockSet    bool                       // our clock is wrong at times
}

func newSimModel() simModel {
	return simModel{
		newest: make(map[string]*nostr.Event), all: make(map[string]*nostr.Event),
		deleted: make(map[string]bool), before: make(map[string]nostr.Timestamp),
		owners: make(map[string]string), maintainers: make(map[string]map[string]bool),
		ever: make(map[string]map[string]bool),
		late: make(map[string]bool), holders: make(map[string][]*simRelay),
	}
}

func addressOf(ev *nostr.Event) string {
	return fmt.Sprint(ev.Kind, ":", ev.PubKey, ":", ev.Tags.GetD())
}

func (m *simModel) publish(ev *nostr.Event) {
	m.all[ev.ID] = ev
	key := ev.ID
	if nostr.IsAddressableKind(ev.Kind) {
		key = addressOf(ev)
	}
	old, ok := m.newest[key]
	if !ok || ev.CreatedAt > old.CreatedAt || (ev.CreatedAt == old.CreatedAt && ev.ID < old.ID) {
		m.newest[key] = ev
	}
	if ev.Kind == graspsync.KindDeletion {
		for tag := range ev.Tags.FindAll("e") {
			m.deleted[tag[1]] = true
		}
		for tag := range ev.Tags.FindAll("a") {
			m.before[tag[1]] = max(m.before[tag[1]], ev.CreatedAt)
		}
	}
}

// maintain records the authors whose states of a repository count.
func (m *simModel) maintain(r *simRepo) {
	set := map[string]bool{r.owner.Hex(): true}
	for _, k := range r.maintainers {
		set[k.Hex()] = true
	}
	m.owners[r.name], m.maintainers[r.name] = r.owner.Hex(), set
	if m.ever[r.name] == nil {
		m.ever[r.name] = make(map[string]bool)
	}
	maps.Copy(m.ever[r.name], set)
}

// gone reports whether the author of an event deleted it.
func (m *simModel) gone(ev *nostr.Event) bool {
	if m.deleted[ev.ID] {
		return true
	}
	until, ok := m.before[addressOf(ev)]
	return ok && nostr.IsAddressableKind(ev.Kind) && ev.CreatedAt <= until
}

// optional reports whether the order of arrival decides about an event: a state of a former
// maintainer, or a deletion whose target was removed everywhere before it was received.
func (m *simModel) optional(ev *nostr.Event) bool {
	switch ev.Kind {
	case graspsync.KindDeletion:
		return true
	case graspsync.KindState:
		identifier := ev.Tags.GetD()
		return m.ever[identifier][ev.PubKey] && !m.maintainers[identifier][ev.PubKey] || !simReexamined && m.owners[identifier] != ev.PubKey
	}
	return false
}

// wanted returns the events that must be stored in the end.
func (m *simModel) wanted() []*nostr.Event {
	var out []*nostr.Event
	for _, ev := range m.newest {
		if !m.gone(ev) && !m.optional(ev) && !m.foreign(ev.ID) {
			out = append(out, ev)
		}
	}
	return out
}

// foreign reports whether an event must not be stored in the end.
func (m *simModel) foreign(id string) bool {
	ev := m.all[id]
	if ev == nil {
		return true
	}
	if m.optional(ev) {
		return false
	}
	if identifier := ev.Tags.GetD(); ev.Kind == graspsync.KindState && !m.ever[identifier][ev.PubKey] {
		return true
	}
	return m.gone(ev) || nostr.IsAddressableKind(ev.Kind) && m.newest[addressOf(ev)].ID != id
}

func (m *simModel) ids() []string {
	var out []string
	for _, ev := range m.wanted() {
		out = append(out, ev.ID)
	}
	slices.Sort(out)
	return out
}

// delay returns the maximum delay of an event in addition to a backoff, including that of the
// events to which it belongs.
func (m *simModel) delay(ev *nostr.Event) simDelay {
	d := simPrompt
	holders := m.holders[ev.ID]
	switch {
	case len(holders) > 0 && !slices.ContainsFunc(holders, func(r *simRelay) bool { return !r.dead }):
		return simDead
	case m.clockSet || m.late[ev.ID] || ev.Kind == graspsync.KindState && m.owners[ev.Tags.GetD()] != ev.PubKey:
		d = simDaily
	}
	for _, tag := range ev.Tags {
		switch {
		case tag[0] == "E" && m.all[tag[1]] != nil:
			d = max(d, m.delay(m.all[tag[1]]))
		case tag[0] == "a" && m.newest[tag[1]] != nil:
			d = max(d, m.delay(m.newest[tag[1]]))
		case tag[0] == "d" && ev.Kind == graspsync.KindState:
			if a := m.newest[fmt.Sprint(graspsync.KindAnnouncement, ":", m.owners[tag[1]], ":", tag[1])]; a != nil {
				d = max(d, m.delay(a))
			}
		}
	}
	return d
}

// simDelay is the maximum delay of an event.
type simDelay uint8

const (
	simPrompt simDelay = iota // a backoff
	simDaily                  // the daily pass
	simDead                   // the daily attempt at a dead relay
)
