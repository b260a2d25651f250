package session

import (
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// auth is the state of NIP-42 on this connection. Authentication runs at most once, after the relay
// refused a request that requires it.
type auth struct {
	state     authState
	challenge string // the latest
	id        graspsync.EventID
	by        time.Time // deadline of the current step
	after     uint64    // requests with a higher number were sent after authentication

	cfg *Config // read-only
	out *outbox
}

type authState uint8

const (
	authNone   authState = iota
	authWanted           // waits for a challenge
	authSigning
	authSent
	authAccepted
	authRefused
)

// underWay reports whether authentication is running. No request is opened meanwhile, because the
// relay would refuse it.
func (a *auth) underWay() bool { return a.state > authNone && a.state < authAccepted }

// helps reports whether a request that requires authentication can be repeated.
func (a *auth) helps(now time.Time, x *request) bool {
	a.begin(now)
	switch a.state {
	case authNone, authRefused:
		return false
	case authAccepted:
		return x.number <= a.after // the request was sent before authentication ended
	}
	return true
}

// begin starts authentication unless it was started before.
func (a *auth) begin(now time.Time) {
	if !a.cfg.Auth || a.state != authNone {
		return
	}
	a.state = authWanted
	a.by = now.Add(a.cfg.FirstNeg)
	a.askToSign(now)
}

// askToSign requests a signed answer to the challenge if a challenge has arrived.
func (a *auth) askToSign(now time.Time) {
	if a.state != authWanted || a.challenge == "" {
		return
	}
	a.state = authSigning
	a.by = now.Add(a.cfg.IdleTimeout)
	a.out.do(Authenticate{Challenge: a.challenge})
}

func (a *auth) challenged(now time.Time, challenge string) {
	a.challenge = challenge
	a.askToSign(now)
}

// signed sends the answer to a challenge. It returns err or an error for an invalid event id.
func (a *auth) signed(ev *nostr.Event, err error) error {
	if err == nil {
		a.id, err = graspsync.ParseEventID(ev.ID)
	}
	if err != nil {
		return fmt.Errorf("signing for authentication: %w", err)
	}
	a.state = authSent
	a.out.do(Send{wire.Request{Type: wire.TypeAnswer, Event: ev}})
	return nil
}

func (a *auth) late(now time.Time) bool { return a.underWay() && !now.Before(a.by) }

// holdsFor reports whether the outcome was known when a request was sent.
func (a *auth) holdsFor(x *request) bool { return a.state >= authAccepted && x.number > a.after }

// over records the outcome. It applies to requests with a number above after.
func (a *auth) over(accepted bool, after uint64) {
	a.after = after
	a.state = authRefused
	if accepted {
		a.state = authAccepted
	}
}
