package sync

import (
	"context"
	"errors"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// safePolicy calls the Policy, the Holder and the Rules. A panic becomes an error.
type safePolicy struct {
	of        Policy
	holder    Holder // nil if nothing is held
	view      View
	rules     Rules // nil: there are none
	identity  nip34.Identity
	timeout   time.Duration // of a judgement
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

// verdict checks the times of an event and the rules, and then calls the Policy.
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
		return graspsync.Verdict{}, errHolder // without an error the event would be requested again and again
	}
	return v, err
}

// foreign reports whether an event is an announcement for another service, which the Policy rejects
// whatever its signature: Lists refuses it, and no hosted repository lists its author. It is called
// before the signature is checked, so it does not read the Store and does not call Judge. The
// verdict may change when the author is listed as a maintainer.
func (p *safePolicy) foreign(ev graspsync.Event) (v graspsync.Verdict, foreign bool) {
	if ev.Kind != graspsync.KindAnnouncement || p.of == nil {
		return v, false
	}
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil || p.view.Knows(a.Ref.Identifier, a.Ref.Owner) {
		return v, false
	}
	defer func() {
		if recover() != nil { // verify and judge the event like others
			foreign = false
			p.telemetry.panicked("policy")
		}
	}()
	if p.rules != nil {
		if reason, _ := p.rules.Blocks(ev); reason != "" || p.rules.BlocksRepository(a.Ref) {
			return v, false // the verdict depends on a rule
		}
	}
	if p.of.Lists(a) {
		return v, false
	}
	heard := p.of.RecognizedAuthors(a.Ref.Identifier, p.view)
	if _, is := heard[a.Ref.Owner]; heard == nil || is || len(heard) >= nip34.WaitingBounds().Each {
		return v, false // with so many maintainers only Judge decides who has room
	}
	return unlisted(p.identity, a), true
}

// isAhead reports whether an event is dated too far in the future.
func (p *safePolicy) isAhead(ev graspsync.Event) bool {
	// Compare seconds, because the largest timestamps do not fit into a time.Time.
	return ev.CreatedAt > nostr.Timestamp(time.Now().Add(FutureTolerance).Unix())
}

// events reads stored events through the View of the Policy.
func (p *safePolicy) events(ctx context.Context, ids []graspsync.EventID) (_ map[graspsync.EventID]graspsync.Event, err error) {
	defer p.telemetry.recovered(&err, whoseStore)
	return p.view.Events(ctx, ids)
}

// hear calls [Policy].RecognizedAuthors. It returns false if the Policy cannot tell.
func (p *safePolicy) hear(identifier string) (map[graspsync.PubKey]bool, bool) {
	heard, err := p.heard(identifier)
	return heard, err == nil && heard != nil
}

func (p *safePolicy) heard(identifier string) (_ map[graspsync.PubKey]bool, err error) {
	defer p.telemetry.recovered(&err, "policy")
	return p.of.RecognizedAuthors(identifier, p.view), nil
}

// canTell reports whether RecognizedAuthors of the Policy returns a result.
func (p *safePolicy) canTell(identifier string) bool {
	_, can := p.hear(identifier)
	return can
}

func (p *safePolicy) heldForUser(id graspsync.EventID) (byUser, held bool) {
	if p.holder == nil {
		return false, false
	}
	var err error
	defer p.telemetry.recovered(&err, "policy") // a panicking Policy cannot tell
	return p.holder.HeldForUser(id)
}

// authority returns the members of a repository, or nil if the Policy cannot tell.
func (p *safePolicy) authority(ref graspsync.RepoRef) *nip34.Authority {
	var err error
	defer p.telemetry.recovered(&err, "policy") // a panicking Policy cannot tell
	return p.of.Authority(ref, p.view)
}
