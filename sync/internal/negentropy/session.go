package negentropy

import (
	"errors"
	"fmt"
	"slices"
)

// Errors of [Session.Step], in addition to [ErrProtocol].
var (
	// ErrRounds reports that the peer did not converge within Limits.MaxRounds.
	ErrRounds = errors.New("negentropy: too many rounds")
	// ErrTooMany reports that the peer has more than Limits.MaxIDs ids that the set lacks.
	ErrTooMany = errors.New("negentropy: too many ids")
)

// Limits are the limits of a session. The zero value uses all defaults.
type Limits struct {
	// FrameSize is the maximum size of a sent message in bytes; hex doubles it. Values from 1 to
	// 4095 count as 4096, and negative values as no limit. Defaults to 30,000.
	FrameSize int
	// MaxRounds is the maximum number of messages accepted from the peer. Defaults to 64.
	MaxRounds int
	// MaxIDs is the maximum number of different ids that a peer may claim and the set lacks. With
	// more, the session ends with [ErrTooMany]. Defaults to 200,000.
	MaxIDs int
}

func (l Limits) withDefaults() Limits {
	if l.FrameSize == 0 {
		l.FrameSize = defaultFrame
	}
	if l.MaxRounds <= 0 {
		l.MaxRounds = 64
	}
	if l.MaxIDs <= 0 {
		l.MaxIDs = 200_000
	}
	return l
}

// Session is the asking side. It finds the ids that only one side has. Send the result of
// [Session.Open], then pass each answer to [Session.Step] and send the reply, until Step reports
// done.
//
// A Session serves one reconciliation with one peer. It is not safe for concurrent use.
type Session struct {
	set    *Set
	limits Limits

	opened bool
	rounds int
	done   bool
	err    error

	need idList
	have spanList
}

// NewSession returns a session for one peer.
func NewSession(s *Set, l Limits) *Session {
	l = l.withDefaults()
	return &Session{
		set:    s,
		limits: l,
		need:   idList{limit: l.MaxIDs},
		have:   spanList{limit: s.Len() + 2},
	}
}

// Open returns the first message, which is the same at each call.
func (s *Session) Open() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.opened = true
	w := newWriter(s.set, s.limits.FrameSize)
	w.split(s.set.Len(), &bound{time: infinity})
	return w.out, nil
}

// Step handles an answer of the peer and returns the next message to send. If done is true, no
// message must be sent, and [Session.Need] and [Session.Have] are complete. Step does not keep msg.
//
// An error wraps [ErrProtocol], [ErrRounds] or [ErrTooMany] and ends the session. The ids found so
// far remain available. After the end, further calls return the same result.
func (s *Session) Step(msg []byte) (reply []byte, done bool, err error) {
	if s.done || s.err != nil {
		return nil, s.done, s.err
	}
	reply, s.err = s.step(msg)
	if s.err != nil {
		return nil, false, s.err
	}
	return reply, s.done, nil
}

func (s *Session) step(msg []byte) ([]byte, error) {
	if !s.opened {
		return nil, violation("an answer before the first message")
	}
	s.rounds++
	if err := checkVersion(msg); err != nil {
		return nil, err
	}
	reply, err := s.reconcile(msg[1:])
	if err != nil {
		return nil, fmt.Errorf("round %d: %w", s.rounds, err)
	}
	if len(reply) == 1 {
		if err := s.need.check(); err != nil {
			return nil, err
		}
		s.done = true
		return nil, nil
	}
	if s.rounds >= s.limits.MaxRounds {
		return nil, fmt.Errorf("%w: differences remain after %d", ErrRounds, s.rounds)
	}
	return reply, nil
}

func (s *Session) reconcile(ranges []byte) ([]byte, error) {
	w := newWriter(s.set, s.limits.FrameSize)
	r := reader{rest: ranges}
	for full := false; ; {
		sec, ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return w.out, nil
		}
		// Sections after a full frame will be sent again, so they are only validated.
		if full {
			continue
		}
		fits, err := s.section(w, &sec)
		if err != nil {
			return nil, err
		}
		if full = !fits; full {
			w.rest()
		}
	}
}

func (s *Session) section(w *writer, sec *section) (fits bool, err error) {
	hi := s.set.search(w.at, &sec.upper)
	switch {
	case sec.mode == modeIDs:
		if err := s.compare(sec.ids, w.at, hi); err != nil {
			return false, err
		}
	case sec.mode == modeFingerprint && !w.matches(sec.fingerprint, hi):
		return ask(w, hi, &sec.upper), nil
	}
	w.settle(hi, &sec.upper)
	return true, nil
}

// ask requests details about [w.at, hi), which differs.
//
// The reference implementation splits the range or lists our ids, which takes the fewest rounds.
// With many differences the frame size is the limit. Then our fingerprint of the range is returned,
// with a tenth of the bytes or less, and the peer splits or lists. That costs another round only
// where the peer has many items and we have few. A single id, or an empty list, is always sent
// because it is short.
func ask(w *writer, hi int, upper *bound) bool {
	if scarce := len(w.out) > w.limit/4; scarce && hi-w.at > 1 {
		return w.digest(hi, upper)
	}
	return w.split(hi, upper)
}

// Need returns the ids that only the peer has, without duplicates. They are claims until their
// events are fetched.
func (s *Session) Need() [][32]byte {
	s.need.compact()
	return slices.Clone(s.need.ids)
}

// Have returns the ids that only the set has, oldest first.
func (s *Session) Have() [][32]byte {
	s.have.compact()
	ids := make([][32]byte, 0, s.have.len())
	for _, sp := range s.have.spans {
		ids = append(ids, s.set.ids[sp.lo:sp.hi]...)
	}
	return ids
}

// TheirLen returns the number of the peer's items, once the session is done.
func (s *Session) TheirLen() int {
	s.need.compact()
	s.have.compact()
	return s.set.Len() - s.have.len() + len(s.need.ids)
}
