package session

import (
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// auth is how far NIP-42 got on this connection. It is done at most once, and only
// if something was refused for want of it.
type auth struct {
	state     authState
	challenge string // the last one
	id        graspsync.EventID
	by        time.Time // when it must be over
	after     uint64    // what was sent later counts as authenticated
	again     time.Time // from when on another connection may do better, zero: never

	cfg *Config // read-only
	out *outbox
}

type authState uint8

const (
	authNone   authState = iota
	authWanted           // no challenge has come
	authSigning
	authSent
	authAccepted
	authRefused
)

// underWay reports whether the outcome is waited for. Nothing is opened meanwhile: it
// would be refused.
func (a *auth) underWay() bool { return a.state > authNone && a.state < authAccepted }

// helps reports whether a request that was refused for want of authentication is to be
// repeated.
func (a *auth) helps(now time.Time, x *request) bool {
	a.begin(now)
	switch a.state {
	case authNone, authRefused:
		return false
	case authAccepted:
		return x.number <= a.after // its refusal was on its way
	}
	return true
}

// begin authenticates, unless that was tried before.
func (a *auth) begin(now time.Time) {
	if !a.cfg.Auth || a.state != authNone {
		return
	}
	a.state = authWanted
	a.by = now.Add(a.cfg.FirstNeg)
	a.askToSign(now)
}

// askToSign has the challenge answered, once there is one.
func (a *auth) askToSign(now time.Time) {
	if a.state != authWanted || a.challenge == "" {
		return
	}
	a.state = authSigning
	a.by = now.Add(a.cfg.IdleTimeout)
	a.out.do(Authenticate{Challenge: a.challenge})
}

// challenged keeps a challenge; it may come at any time.
func (a *auth) challenged(now time.Time, challenge string) {
	a.challenge = challenge
	a.askToSign(now)
}

// signed sends the answer to a challenge. It returns an error if there is none.
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

// late reports whether the relay took too long.
func (a *auth) late(now time.Time) bool { return a.underWay() && !now.Before(a.by) }

// authAgain is how long a connection is kept whose authentication came to nothing, or is not
// believed any more. A relay that is never content is not to be signed for again and again.
const authAgain = time.Hour

// mayPass notes that the outcome is none for good: the relay's answer did not come, was about a
// failure of its own, or is that it accepts, which may run out. It is done once per connection:
// another one may do better.
func (a *auth) mayPass(now time.Time) { a.again = now.Add(authAgain) }

// holdsFor reports whether the outcome was known when a request was sent.
func (a *auth) holdsFor(x *request) bool { return a.state >= authAccepted && x.number > a.after }

// over keeps the outcome. What was sent later than after is authenticated.
func (a *auth) over(accepted bool, after uint64) {
	a.after = after
	a.state = authRefused
	if accepted {
		a.state = authAccepted
	}
}
