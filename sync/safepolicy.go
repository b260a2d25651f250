package sync

import (
	"context"
	"errors"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// safePolicy is the Policy, with panics that are errors, and what it judges by.
type safePolicy struct {
	of        Policy
	holder    Holder // nil if nothing is held
	view      View
	rules     Rules // nil: there are none
	identity  nip34.Identity
	timeout   time.Duration // of a judgement
	ahead     time.Duration // how far in the future an event may be dated
	telemetry *telemetry
}

var (
	errVerdict = errors.New("the Policy gave no valid verdict")
	errHolder  = errors.New("the Policy held an event, and Config.Holder is not set: set it to what tells which events are held")
)

const (
	reasonFuture  = "invalid: dated too far ahead"
	reasonExpired = "invalid: event is expired"
)

// verdict is the policy's, after what takes a clock.
func (p *safePolicy) verdict(ctx context.Context, in graspsync.Incoming) (v graspsync.Verdict, err error) {
	if p.isAhead(in.Event) {
		return graspsync.Verdict{Decision: graspsync.Later, Reason: reasonFuture}, nil
	}
	if at, expires := nip34.Expiration(in.Event.Event); expires && at <= nostr.Now() { // NIP-40
		return reject(reasonExpired), nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	defer p.telemetry.recovered(&err, "policy judge")
	v, err = p.of.Judge(ctx, in.Event, in.Source, p.view)
	if err == nil && v.Decision == graspsync.Hold && p.holder == nil {
		return graspsync.Verdict{}, errHolder // else relays would be asked for it again and again
	}
	return v, err
}

// foreign reports whether an event is an announcement that the policy rejects whatever its signature,
// because it is for another service: Lists refuses it, and nobody here has to do with its repository. It
// is called before the signature is checked, so it reads no Store and does not ask Judge. The verdict
// depends on what is stored or held now: the announcement may be one of a maintainer who is listed later.
func (p *safePolicy) foreign(ev graspsync.Event) (v graspsync.Verdict, foreign bool) {
	if ev.Kind != graspsync.KindAnnouncement || p.of == nil {
		return v, false
	}
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil || p.view.Knows(a.Ref.Identifier, a.Ref.Owner) {
		return v, false
	}
	defer func() {
		if recover() != nil { // it is verified and judged like any other event
			foreign = false
			p.telemetry.panicked("policy")
		}
	}()
	if p.rules != nil {
		if reason, _ := p.rules.Blocks(ev); reason != "" || p.rules.BlocksRepository(a.Ref) {
			return v, false // its verdict depends on a rule
		}
	}
	if p.of.Lists(a) {
		return v, false
	}
	heard := p.of.Heard(a.Ref.Identifier, p.view)
	if _, is := heard[a.Ref.Owner]; heard == nil || is || len(heard) >= nip34.WaitingBounds().Each {
		return v, false // of so many, some may be listed and find no room: Judge says so
	}
	return unlisted(p.identity, a), true
}

// isAhead reports whether an event is dated too far in the future.
func (p *safePolicy) isAhead(ev graspsync.Event) bool {
	// In seconds: the latest of them do not fit into a time.
	return ev.CreatedAt > nostr.Timestamp(time.Now().Add(p.ahead).Unix())
}

// events returns stored events as the policy sees them.
func (p *safePolicy) events(ctx context.Context, ids []graspsync.EventID) (_ map[graspsync.EventID]graspsync.Event, err error) {
	defer p.telemetry.recovered(&err, whoseStore)
	return p.view.Events(ctx, ids)
}

// hear asks the policy whose word counts under an identifier; false: it can't tell.
func (p *safePolicy) hear(identifier string) (map[graspsync.PubKey]bool, bool) {
	heard, err := p.heard(identifier)
	return heard, err == nil && heard != nil
}

func (p *safePolicy) heard(identifier string) (_ map[graspsync.PubKey]bool, err error) {
	defer p.telemetry.recovered(&err, "policy")
	return p.of.Heard(identifier, p.view), nil
}

// canTell reports whether the policy says whose word counts under an identifier.
func (p *safePolicy) canTell(identifier string) bool {
	_, can := p.hear(identifier)
	return can
}

// heldForUser reports whether an event is held, and whether a client submitted it, as far as the
// holder can tell.
func (p *safePolicy) heldForUser(id graspsync.EventID) (byUser, held bool) {
	if p.holder == nil {
		return false, false
	}
	var err error
	defer p.telemetry.recovered(&err, "policy") // then it can't tell
	return p.holder.HeldForUser(id)
}

// heldAnnouncement returns the announcement of a repository that is held, nil if none is.
func (p *safePolicy) heldAnnouncement(ctx context.Context, ref graspsync.RepoRef) *nip34.Announcement {
	if p.holder == nil {
		return nil
	}
	var err error
	defer p.telemetry.recovered(&err, "policy") // then it can't tell
	for a, failed := range p.holder.HeldAnnouncements(ctx) {
		if failed == nil && a.Ref == ref {
			return a
		}
	}
	return nil
}

// authority says who has a say about the refs of a repository, nil if the policy can't tell.
func (p *safePolicy) authority(ref graspsync.RepoRef) *nip34.Authority {
	var err error
	defer p.telemetry.recovered(&err, "policy") // then it can't tell
	return p.of.Authority(ref, p.view)
}
