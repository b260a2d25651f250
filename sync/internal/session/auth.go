package session

import (
	"slices"
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

// authenticating reports whether the outcome is waited for. Nothing is opened
// meanwhile: it would be refused.
func (s *Session) authenticating() bool {
	return s.auth.state > authNone && s.auth.state < authAccepted
}

// mayAuthenticate reports whether a request that was refused for want of
// authentication is to be repeated.
func (s *Session) mayAuthenticate(now time.Time, x *sub) bool {
	s.authenticate(now)
	switch s.auth.state {
	case authNone, authRefused:
		return false
	case authAccepted:
		return x.number <= s.auth.after // its refusal was on its way
	}
	return true
}

// authenticate begins to, unless it was tried before.
func (s *Session) authenticate(now time.Time) {
	if !s.cfg.Auth || s.auth.state != authNone {
		return
	}
	s.auth.state = authWanted
	s.auth.by = now.Add(s.cfg.FirstNeg)
	s.askToSign(now)
}

// askToSign has the challenge answered, once there is one.
func (s *Session) askToSign(now time.Time) {
	if s.auth.state != authWanted || s.auth.challenge == "" {
		return
	}
	s.auth.state = authSigning
	s.auth.by = now.Add(s.cfg.IdleTimeout)
	s.do(Authenticate{Challenge: s.auth.challenge})
}

// onChallenge keeps a challenge; it may come at any time.
func (s *Session) onChallenge(now time.Time, m wire.Message) {
	s.auth.challenge = m.Text
	s.askToSign(now)
}

// Signed answers Authenticate.
func (s *Session) Signed(now time.Time, ev *nostr.Event, err error) []Action {
	if s.auth.state != authSigning {
		return s.flush(now)
	}
	if err == nil {
		s.auth.id, err = graspsync.ParseEventID(ev.ID)
	}
	if err != nil {
		s.authOver(false, "signing for authentication: "+err.Error())
		return s.flush(now)
	}
	s.auth.state = authSent
	s.do(Send{wire.Request{Type: wire.TypeAnswer, Event: ev}})
	return s.flush(now)
}

func (s *Session) onOK(m wire.Message) {
	if s.auth.state == authSent && m.ID == s.auth.id {
		s.authOver(m.Accepted, m.Text)
	}
}

func (s *Session) authLate(now time.Time) {
	if s.authenticating() && !now.Before(s.auth.by) {
		s.authOver(false, "authentication got no answer")
	}
}

// authOver has what was refused repeated, or gives it up.
func (s *Session) authOver(accepted bool, text string) {
	s.auth.after = s.next
	s.auth.state = authAccepted
	if accepted {
		return
	}
	s.auth.state = authRefused
	for _, x := range slices.Clone(s.waiting) {
		if x.toAuth && slices.Contains(s.waiting, x) {
			s.final(x, wire.RefusalAuthRequired, text, false)
		}
	}
}
