package khatruadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

type contextKey struct{}

// IsSynced reports whether a hook of the relay is called for an event that came by
// sync. There is no client and no connection then.
func IsSynced(ctx context.Context) bool { return ctx.Value(contextKey{}) != nil }

func synced(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, true)
}

type followingKey struct{}

// following marks the context of hooks that store or delete which are called for what
// the backend has done already: ours do nothing then.
func following(ctx context.Context) context.Context {
	return context.WithValue(ctx, followingKey{}, true)
}

func isFollowing(ctx context.Context) bool { return ctx.Value(followingKey{}) != nil }

type submissionKey struct{}

// submission marks the context of a policy that is asked about what somebody publishes by
// khatru right now: all RejectEvent hooks have let it pass.
func submission(ctx context.Context) context.Context {
	return context.WithValue(ctx, submissionKey{}, true)
}

func isSubmission(ctx context.Context) bool { return ctx.Value(submissionKey{}) != nil }

// isDeleteRequest reports whether khatru is executing a client's deletion. It does so
// before any hook has said whether the deletion is accepted.
func isDeleteRequest(ctx context.Context) bool {
	return khatru.IsInternalCall(ctx) && khatru.GetConnection(ctx) != nil
}

// first is a hook of ours, for what the backend has not done yet.
func first(h hook) hook {
	return func(ctx context.Context, e *nostr.Event) error {
		if isFollowing(ctx) {
			return nil
		}
		return h(ctx, e)
	}
}

// accepted is a hook that deletes nothing before it is accepted.
func accepted(h hook) hook {
	return func(ctx context.Context, e *nostr.Event) error {
		if isDeleteRequest(ctx) {
			return nil
		}
		return h(ctx, e)
	}
}

type (
	hook  = func(ctx context.Context, e *nostr.Event) error
	judge = func(ctx context.Context, e *nostr.Event) (reject bool, msg string)
	query = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error)
)

// wire adds our hooks to the relay's.
func (s *Sync) wire() {
	r := s.relay
	s.elsewhere = slices.Clone(r.QueryEvents)
	if len(r.StoreEvent) == 0 && len(r.QueryEvents) == 0 {
		b := s.store.Backend()
		r.StoreEvent = append(r.StoreEvent, first(b.SaveEvent))
		r.ReplaceEvent = append(r.ReplaceEvent, first(b.ReplaceEvent))
		r.DeleteEvent = append(r.DeleteEvent, first(b.DeleteEvent))
		r.QueryEvents = append(r.QueryEvents, b.QueryEvents)
	}
	// A deletion that is refused in the end must not have been executed: khatru is to
	// find nothing to delete, and we execute what was accepted.
	for i, q := range r.QueryEvents {
		q = s.questions.answered(q)
		r.QueryEvents[i] = func(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
			if isDeleteRequest(ctx) {
				none := make(chan *nostr.Event)
				close(none)
				return none, nil
			}
			return q(ctx, f)
		}
	}
	for i, del := range r.DeleteEvent {
		r.DeleteEvent[i] = accepted(del)
	}
	if s.gate && s.holding {
		r.StoreEvent = slices.Insert(r.StoreEvent, 0, first(s.hold))
		r.ReplaceEvent = slices.Insert(r.ReplaceEvent, 0, first(s.hold))
	}
	for i, theirs := range r.RejectEvent {
		r.RejectEvent[i] = s.overheard(theirs)
	}
	r.RejectEvent = append(r.RejectEvent, s.reject)
	for _, hooks := range [][]hook{r.StoreEvent, r.ReplaceEvent} {
		if len(hooks) > 0 {
			hooks[0] = s.arriving(hooks[0])
		}
	}
	r.RejectFilter = slices.Insert(r.RejectFilter, 0, s.questions.refuse)
	r.RejectCountFilter = slices.Insert(r.RejectCountFilter, 0, s.questions.refuse)
	r.OnEventSaved = append(r.OnEventSaved, s.saved)
	r.DeleteEvent = append(r.DeleteEvent, accepted(first(func(_ context.Context, e *nostr.Event) error {
		if parsed, err := graspsync.ParseEvent(e); err == nil { // else sync has never heard of it
			s.manager.Removed(parsed)
		}
		return nil
	})))
	// the last hook decides, so that an embedder's rule overrides this one
	r.OverwriteDeletionOutcome = append(
		[]func(context.Context, *nostr.Event, *nostr.Event) (bool, string){deletable}, r.OverwriteDeletionOutcome...)
}

// deletable is khatru's own rule, and that a deletion can't be deleted (NIP-09), nor
// a request to vanish (NIP-62).
func deletable(_ context.Context, target, deletion *nostr.Event) (accept bool, msg string) {
	if target.PubKey != deletion.PubKey {
		return false, "you are not the author of this event"
	}
	if target.Kind == nostr.KindDeletion || target.Kind == graspsync.KindVanish {
		return false, "a deletion can't be deleted"
	}
	return true, ""
}

const (
	msgMalformed = "invalid: malformed event"
	msgBareD     = "invalid: d tag without a value"
	msgDeleted   = "blocked: this event has been deleted"
	msgLookup    = "error: could not look up deletions"
	msgRoom      = "error: no room on the disk, try again later"
	msgJudge     = "error: could not judge the event"
	msgReject    = "blocked: not for this relay"
	msgDepends   = "blocked: what it belongs to is not here"
	msgHeld      = "blocked: held back until what it needs is here"
)

// reject is our RejectEvent hook. What it refuses is remembered for who asks why.
func (s *Sync) reject(ctx context.Context, e *nostr.Event) (reject bool, msg string) {
	if IsSynced(ctx) {
		return false, ""
	}
	if reason := s.blocked(e); reason != "" {
		if parsed, err := graspsync.ParseEvent(e); err == nil && !nostr.IsEphemeralKind(e.Kind) {
			s.manager.Refused(parsed, reason)
		}
		return true, reason
	}
	if nostr.IsEphemeralKind(e.Kind) {
		return false, ""
	}
	parsed, err := graspsync.ParseEvent(e)
	switch {
	case s.questions.closed.Load():
		msg = msgEnding
	case bareD(e):
		msg = msgBareD // khatru would crash
	case err != nil || strings.ToLower(e.Sig) != e.Sig: // khatru takes it, and other relays do not
		msg = msgMalformed
	}
	if msg != "" { // what is no event has no name to be remembered by
		s.log.Debug("event refused", "event", graspsync.Printable(e.ID), "kind", e.Kind, "source", graspsync.Direct.String(), "reason", msg)
		return true, msg
	}
	if msg = s.refuses(ctx, parsed); msg != "" {
		s.manager.Refused(parsed, msg)
		return true, msg
	}
	if s.gate && !s.holding { // a policy that holds is asked once no hook has refused the event
		if verdict, msg := s.verdict(ctx, parsed); verdict.Decision != graspsync.Accept {
			return true, msg
		}
	}
	s.passing.add(parsed)
	return false, ""
}

// refuses says why the relay would not have what a client submits, whatever the policy says; ""
// if it would.
func (s *Sync) refuses(ctx context.Context, e graspsync.Event) (msg string) {
	if s.Room(e.Event) != nil {
		return msgRoom
	}
	deleted, err := s.store.Deleted(ctx, e)
	if err != nil {
		s.log.Error("deletions could not be looked up", "err", err)
		return msgLookup
	}
	if deleted {
		return msgDeleted
	}
	msg, err = s.undeletable(ctx, e)
	if err != nil {
		s.log.Error("what a deletion names could not be looked up", "err", err)
		return msgLookup
	}
	return msg
}

// undeletable asks the OverwriteDeletionOutcome hooks about what a deletion would
// remove, and returns why it must not. As with khatru one event that must stay is enough
// to refuse the deletion, and a client's is refused if it names somebody else's event.
func (s *Sync) undeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	hooks := s.relay.OverwriteDeletionOutcome
	if deletion.Kind != nostr.KindDeletion || (IsSynced(ctx) && len(hooks) == 1) { // that one is ours
		return "", nil
	}
	named := deletion
	if len(hooks) == 1 { // ours has nothing against what is named by its address: it is of the author's
		named = byID(deletion)
	}
	targets, err := s.store.Targets(ctx, named)
	if err != nil {
		return "", err
	}
	targets = distinct(append(targets, s.targetsElsewhere(ctx, named)...))
	removed := nip34.NewTombstones(s.us)
	removed.Add(deletion)
	for _, target := range targets {
		version := !nostr.IsRegularKind(target.Kind) && target.PubKey == deletion.PubKey // it may be too new
		if !removed.Cover(target) && (version || IsSynced(ctx)) {
			continue
		}
		ok, why := false, ""
		for _, hook := range hooks {
			ok, why = hook(ctx, target.Event, deletion.Event)
		}
		if !ok {
			return nostr.NormalizeOKMessage(why, "blocked"), nil
		}
	}
	return "", nil
}

// byID is a deletion of what one names by id.
func byID(deletion graspsync.Event) graspsync.Event {
	named := *deletion.Event
	named.Tags = slices.DeleteFunc(slices.Clone(deletion.Tags), func(t nostr.Tag) bool { return len(t) > 0 && t[0] == "a" })
	deletion.Event = &named
	return deletion
}

// started waits for a while until the store has been read. It reports whether it was.
func (s *Sync) started(ctx context.Context) bool {
	patience := time.NewTimer(startGrace)
	defer patience.Stop()
	select {
	case <-s.manager.Ready():
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}

// verdict asks the policy, and says what a client is to hear.
func (s *Sync) verdict(ctx context.Context, e graspsync.Event) (verdict graspsync.Verdict, msg string) {
	ctx = submission(ctx)
	verdict, err := s.manager.Judge(ctx, e)
	if errors.Is(err, relaysync.ErrNotReady) && s.started(ctx) {
		verdict, err = s.manager.Judge(ctx, e)
	}
	if errors.Is(err, ErrRoom) { // since the hooks were asked
		return graspsync.Verdict{}, msgRoom
	}
	if err != nil {
		s.log.Error("event could not be judged", "err", err)
		s.manager.Refused(e, msgJudge)
		return graspsync.Verdict{}, msgJudge
	}
	if verdict.Decision == graspsync.Reject || verdict.Decision == graspsync.Depend {
		// What is stored is a duplicate, whatever would be said of it now: a deletion
		// deletes nothing any more that was here when it came.
		if has, err := s.store.Has(ctx, []graspsync.EventID{e.ID}); err == nil && has[0] {
			return graspsync.Verdict{Decision: graspsync.Accept}, ""
		}
	}
	switch verdict.Decision {
	case graspsync.Hold:
		msg = msgHeld
	case graspsync.Depend:
		msg = msgDepends
	default:
		msg = msgReject
	}
	if verdict.Reason != "" {
		msg = verdict.Message()
	}
	return verdict, msg
}

// bareD reports whether the d tag that khatru takes for the identifier has no
// value.
func bareD(e *nostr.Event) bool {
	if nostr.IsRegularKind(e.Kind) {
		return false
	}
	for _, t := range e.Tags {
		if len(t) > 0 && t[0] == "d" {
			return len(t) < 2
		}
	}
	return false
}

// targetsElsewhere returns what hooks of the relay that query give of what a deletion
// names: not all they have need be in the backend.
func (s *Sync) targetsElsewhere(ctx context.Context, deletion graspsync.Event) (targets []graspsync.Event) {
	if len(s.elsewhere) == 0 {
		return nil
	}
	ids, at := nip34.Deletes(deletion)
	at = slices.DeleteFunc(at, func(c graspsync.Address) bool {
		return !nostr.IsAddressableKind(c.Kind) && !nostr.IsReplaceableKind(c.Kind) // no event has such an address
	})
	// In order of kinds, so that few others match what asks for several. Those without an
	// identifier come first.
	slices.SortFunc(at, func(a, b graspsync.Address) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Identifier, b.Identifier))
	})
	at = slices.Compact(at)
	tagged := slices.IndexFunc(at, func(c graspsync.Address) bool { return nostr.IsAddressableKind(c.Kind) })
	if tagged < 0 {
		tagged = len(at)
	}
	parts := slices.Collect(slices.Chunk(at[:tagged], answerAtMost/2))
	parts = slices.AppendSeq(parts, slices.Chunk(at[tagged:], answerAtMost/2))
	for _, q := range s.elsewhere {
		for some := range slices.Chunk(ids, answerAtMost) {
			f := nostr.Filter{}
			for _, id := range some {
				f.IDs = append(f.IDs, id.String())
			}
			targets = append(targets, s.queried(ctx, q, f)...)
		}
		for _, some := range parts {
			found := s.queried(ctx, q, versions(deletion, some))
			if len(found) >= answerAtMost { // others match as well, and may have kept some out
				for i := range some {
					found = append(found, s.queried(ctx, q, versions(deletion, some[i:i+1]))...)
				}
			}
			targets = append(targets, found...)
		}
	}
	return targets
}

// answerAtMost is how many events many answer at most.
const answerAtMost = 100

// versions is for what a deletion removes at some addresses, or at others of the same kinds
// and identifiers.
func versions(deletion graspsync.Event, at []graspsync.Address) nostr.Filter {
	f := nostr.Filter{Authors: []string{deletion.Event.PubKey}, Until: &deletion.CreatedAt}
	for _, c := range at {
		f.Kinds = append(f.Kinds, c.Kind)
		if nostr.IsAddressableKind(c.Kind) {
			if f.Tags == nil {
				f.Tags = nostr.TagMap{}
			}
			f.Tags["d"] = append(f.Tags["d"], c.Identifier)
		}
	}
	f.Kinds = slices.Compact(f.Kinds)
	return f
}

// queried is what a hook of the relay's that queries gives.
func (s *Sync) queried(ctx context.Context, q query, f nostr.Filter) (found []graspsync.Event) {
	err := protect(func() {
		if ch, err := q(ctx, f); err == nil {
			for e := range ch {
				if parsed, err := graspsync.ParseEvent(e); err == nil {
					found = append(found, parsed)
				}
			}
		}
	})
	if err != nil {
		s.log.Error("hook of the relay failed", "hook", "QueryEvents", "err", err)
	}
	return found
}

// distinct leaves out what is there already: several stores may have an event, and hooks
// are called for it once.
func distinct(events []graspsync.Event) []graspsync.Event {
	seen := make(map[graspsync.EventID]bool, len(events))
	return slices.DeleteFunc(events, func(e graspsync.Event) bool {
		again := seen[e.ID]
		seen[e.ID] = true
		return again
	})
}

// deleteElsewhere calls the DeleteEvent hooks for what a stored deletion covers that is
// not in the backend.
func (s *Sync) deleteElsewhere(ctx context.Context, deletion graspsync.Event) {
	if deletion.Kind != nostr.KindDeletion {
		return
	}
	removed := nip34.NewTombstones(s.us)
	removed.Add(deletion)
	for _, target := range distinct(s.targetsElsewhere(ctx, deletion)) {
		if removed.Cover(target) {
			s.call(following(ctx), "DeleteEvent", s.relay.DeleteEvent, target.Event)
		}
	}
}

// saved is our OnEventSaved hook. It returns when a deletion is executed, before its
// client hears that it is stored.
func (s *Sync) saved(ctx context.Context, e *nostr.Event) {
	if IsSynced(ctx) {
		return
	}
	s.expiry.Track(e)
	parsed, err := graspsync.ParseEvent(e)
	if err != nil {
		return // our own store has none such
	}
	s.passing.arrived(parsed.ID) // no hook stores it if khatru is to store versions by itself, and has a newer one
	s.manager.Stored(parsed)
	s.undo(context.WithoutCancel(ctx), parsed)
	if s.deletes(e) {
		if err := s.store.Execute(context.WithoutCancel(ctx), parsed); err != nil {
			s.log.Error("deletion could not be executed; it will be", "err", err)
			s.executeAgain()
		}
	}
	s.followRemovals(context.WithoutCancel(ctx))
	s.deleteElsewhere(context.WithoutCancel(ctx), parsed)
}

// undo removes an event that has just been stored if a deletion of it came meanwhile: it
// was not there yet for all hooks when that was executed. A deletion is stored before it is
// executed, so one that is not seen here finds the event.
func (s *Sync) undo(ctx context.Context, e graspsync.Event) {
	deleted, err := s.store.Deleted(ctx, e)
	if err == nil && deleted {
		if err = s.store.Remove(ctx, e); err == nil {
			s.removed.Add(e)
			s.followRemovals(ctx)
			s.manager.Removed(e)
		}
	}
	if err != nil {
		s.log.Error("an event that may be deleted could not be removed; it will be", "event", e.ID, "err", err)
		s.executeAgain()
	}
}

// executeAgain has all stored deletions executed once more.
func (s *Sync) executeAgain() {
	select {
	case s.unfinished <- struct{}{}:
	default:
	}
}

// deletes reports whether an event has others removed.
func (s *Sync) deletes(e *nostr.Event) bool {
	return e.Kind == nostr.KindDeletion || s.us.Vanishes(e)
}

// followRemovals calls the DeleteEvent hooks for what the backend has removed. Whoever
// comes first does so for all.
func (s *Sync) followRemovals(ctx context.Context) {
	for _, e := range s.removed.Take() {
		s.call(following(ctx), "DeleteEvent", s.relay.DeleteEvent, e.Event)
	}
}

// followStored calls the hooks that store for what the backend has stored.
func (s *Sync) followStored(ctx context.Context, e *nostr.Event) {
	if !nostr.IsRegularKind(e.Kind) && len(s.relay.ReplaceEvent) > 0 {
		s.call(following(ctx), "ReplaceEvent", s.relay.ReplaceEvent, e)
		return
	}
	s.call(following(ctx), "StoreEvent", s.relay.StoreEvent, e)
}

// call calls hooks. That an event is there already is what the backend's own says, if
// it is among them.
func (s *Sync) call(ctx context.Context, name string, hooks []hook, e *nostr.Event) {
	for _, hook := range hooks {
		var err error
		if perr := protect(func() { err = hook(ctx, e) }); perr != nil {
			err = perr
		}
		if err != nil && !errors.Is(err, eventstore.ErrDupEvent) {
			s.log.Error("hook of the relay failed", "hook", name, "err", err)
		}
	}
}

// save stores events and does what follows for those that are new.
func (s *Sync) save(
	ctx context.Context, store relaysync.Store, events []graspsync.Incoming,
) (outcomes []graspsync.Outcome, err error) {
	removed := s.removed.Count()
	outcomes, err = store.Save(ctx, events)
	s.followRemovals(ctx)
	if err != nil {
		s.unsure.Add(events...)
		return nil, err
	}
	if len(outcomes) != len(events) {
		return nil, fmt.Errorf("%d outcomes of %d events", len(outcomes), len(events))
	}
	for i, in := range events {
		o := &outcomes[i]
		if o.Result == graspsync.Failed {
			s.unsure.Add(in)
			continue
		}
		if in.Event.IsZero() {
			continue
		}
		if tried := s.unsure.Take(in.Event.ID); tried && o.Result == graspsync.Duplicate {
			o.Result = graspsync.Stored // by the attempt that failed, which nothing followed
		}
		switch o.Result {
		case graspsync.Stored:
			s.imported(ctx, in.Event)
			if s.removed.Count() != removed { // maybe this one, before all hooks had it
				s.undo(ctx, in.Event)
			}
		case graspsync.Duplicate:
			s.expiry.Track(in.Event.Event) // an earlier process may have ended before that
		}
	}
	return outcomes, nil
}

// acceptable asks the relay's hooks about an event that is about to be stored. The zero
// Outcome means that they let it pass.
func (s *Sync) acceptable(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	if in.Event.IsZero() {
		return outcome // the store knows what to say
	}
	if !s.holding { // else they were asked before the policy was
		if outcome = s.admit(ctx, in); outcome.Result != 0 {
			return outcome
		}
	}
	if err := s.Room(in.Event.Event); err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	}
	var msg string
	var err error
	if perr := protect(func() { msg, err = s.undeletable(ctx, in.Event) }); perr != nil {
		err = fmt.Errorf("%w: OverwriteDeletionOutcome: %w", ErrHook, perr)
	}
	switch {
	case err != nil:
		return graspsync.Outcome{Result: graspsync.Failed, Err: err}
	case msg != "":
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
	}
	return outcome
}

// admit asks the rules and the RejectEvent hooks. The zero Outcome means that they let it pass. What a
// client was allowed to submit needs no authentication when it is released.
func (s *Sync) admit(ctx context.Context, in graspsync.Incoming) (outcome graspsync.Outcome) {
	e := in.Event.Event
	if reason := s.blocked(e); reason != "" {
		return graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %s", ErrRejected, reason)}
	}
	err := protect(func() {
		for _, hook := range s.relay.RejectEvent {
			reject, msg := hook(ctx, e)
			if !reject || strings.HasPrefix(msg, "rate-limited:") ||
				(in.Source.Kind == graspsync.Direct && strings.HasPrefix(msg, "auth-required:")) {
				continue
			}
			if !s.told.Swap(true) {
				s.log.Warn("a RejectEvent hook refuses what comes by sync; khatruadapter.IsSynced tells it", "reason", msg)
			}
			outcome = graspsync.Outcome{Result: graspsync.Refused, Err: fmt.Errorf("%w: %.300q", ErrRejected, msg)}
			if strings.HasPrefix(msg, "error:") {
				outcome.Result = graspsync.Failed
			}
			return
		}
	})
	if err != nil {
		return graspsync.Outcome{Result: graspsync.Failed, Err: fmt.Errorf("%w: RejectEvent: %w", ErrHook, err)}
	}
	return outcome
}

// blocked returns why a rule blocks an event, "" if none does.
func (s *Sync) blocked(e *nostr.Event) string {
	if s.rules == nil {
		return ""
	}
	parsed, err := graspsync.ParseEvent(e)
	if err != nil {
		return "" // that is said elsewhere
	}
	reason, _ := s.rules.Blocks(parsed)
	return reason
}

// imported does what follows for an event that is newly stored.
func (s *Sync) imported(ctx context.Context, e graspsync.Event) {
	s.followStored(ctx, e.Event)
	s.deleteElsewhere(ctx, e)
	for _, hook := range s.relay.OnEventSaved {
		if err := protect(func() { hook(ctx, e.Event) }); err != nil {
			s.log.Error("hook of the relay failed", "hook", "OnEventSaved", "err", err)
		}
	}
	s.expiry.Track(e.Event)
	s.broadcast(e.Event)
}
