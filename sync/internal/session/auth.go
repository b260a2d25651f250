package session

import (
	"fmt"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// auth is the state of NIP-42 on this connection. Authentication runs at most once.
type auth struct {
	state     authState
	challenge string
	id        graspsync.EventID
	by        time.Time
	after     uint64 // requests with a higher number were sent after authentication

	cfg *Config
	do  func(Action)
}

type authState uint8

const (
	authNone authState = iota
	authWanted
	authSigning
	authSent
	authAccepted
	authRefused
)

// underWay reports whether requests wait for NIP-42, because the relay would refuse them.
func (a *auth) underWay() bool { return a.state > authNone && a.state < authAccepted }

func (a *auth) helps(now time.Time, x *request) bool {
	a.begin(now)
	switch a.state {
	case authNone, authRefused:
		return false
	case authAccepted:
		return x.number <= a.after // sent before authentication ended
	}
	return true
}

func (a *auth) begin(now time.Time) {
	if !a.cfg.Auth || a.state != authNone {
		return
	}
	a.state = authWanted
	a.by = now.Add(negentropyFirst)
	a.askToSign(now)
}

func (a *auth) askToSign(now time.Time) {
	if a.state != authWanted || a.challenge == "" {
		return
	}
	a.state = authSigning
	a.by = now.Add(idleTimeout)
	a.do(Authenticate{Challenge: a.challenge})
}

func (a *auth) challenged(now time.Time, challenge string) {
	a.challenge = challenge
	a.askToSign(now)
}

func (a *auth) signed(ev *nostr.Event, err error) error {
	if err == nil {
		a.id, err = graspsync.ParseEventID(ev.ID)
	}
	if err != nil {
		return fmt.Errorf("signing for authentication: %w", err)
	}
	a.state = authSent
	a.do(Send{wire.Request{Type: wire.TypeAnswer, Event: ev}})
	return nil
}

func (a *auth) late(now time.Time) bool { return a.underWay() && !now.Before(a.by) }

func (a *auth) over(accepted bool, after uint64) {
	a.after = after
	a.state = authRefused
	if accepted {
		a.state = authAccepted
	}
}
