package negentropy

import (
	"cmp"
	"errors"
	"fmt"
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
	// FrameSize is the maximum size of a sent message in bytes, at least 4096; hex doubles it.
	// Defaults to 30,000.
	FrameSize int
	// MaxRounds is the maximum number of messages accepted from the peer. Defaults to 64.
	MaxRounds int
	// MaxIDs is the maximum number of different ids that a peer may claim and the set lacks. With
	// more, the session ends with [ErrTooMany]. Defaults to 200,000.
	MaxIDs int
}

// Session is the asking side. Send the result of [Session.Open], then pass each answer to
// [Session.Step] and send the reply, until Step reports done.
//
// A Session serves one reconciliation with one peer. It is not safe for concurrent use.
type Session struct {
	set    *Set
	limits Limits

	rounds int
	done   bool
	err    error

	need   map[[idSize]byte]uint32 // ids that only the peer has, numbered in order of arrival
	claims uint32
	have   []bool // by item of the set: only the set has it; nil: none
	haves  int
}

// NewSession returns a session for one peer.
func NewSession(s *Set, l Limits) *Session {
	l.MaxRounds, l.MaxIDs = cmp.Or(l.MaxRounds, 64), cmp.Or(l.MaxIDs, 200_000)
	return &Session{set: s, limits: l, need: make(map[[idSize]byte]uint32)}
}

// Open returns the first message, which is the same at each call.
func (s *Session) Open() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
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
	s.rounds++
	if reply, err = s.step(msg); err != nil {
		s.err = fmt.Errorf("round %d: %w", s.rounds, err)
		return nil, false, s.err
	}
	s.done = reply == nil
	return reply, s.done, nil
}

// step returns nil at the end.
func (s *Session) step(msg []byte) ([]byte, error) {
	w := newWriter(s.set, s.limits.FrameSize)
	reply, err := w.reply(msg, func(sec *section, hi int) (fits bool, err error) {
		switch {
		case sec.mode == modeIDs:
			err = s.compare(sec.ids, w.at, hi)
		case sec.mode == modeFingerprint && !w.matches(sec.fingerprint, hi):
			return ask(w, hi, &sec.upper), nil
		}
		w.settle(hi, &sec.upper)
		return true, err
	})
	switch {
	case err != nil:
		return nil, err
	case len(reply) == 1:
		return nil, nil
	case s.rounds >= s.limits.MaxRounds:
		return nil, ErrRounds
	}
	return reply, nil
}

// compare compares the peer's complete list for a range with our items [lo, hi).
func (s *Session) compare(theirs []byte, lo, hi int) error {
	for ; len(theirs) > 0; theirs = theirs[idSize:] {
		id := [idSize]byte(theirs)
		if _, ok := s.need[id]; !ok {
			s.claims++
			s.need[id] = s.claims
		}
	}
	for i := lo; i < hi; i++ {
		id := s.set.ids[i]
		if _, ok := s.need[id]; ok {
			delete(s.need, id)
			continue
		}
		if s.have == nil {
			s.have = make([]bool, s.set.Len())
		}
		if !s.have[i] {
			s.have[i] = true
			s.haves++
		}
	}
	if len(s.need) > s.limits.MaxIDs {
		return fmt.Errorf("%w: more than %d ids that the set lacks", ErrTooMany, s.limits.MaxIDs)
	}
	return nil
}

// ask requests details about [w.at, hi), which differs. Splitting or listing takes the fewest
// rounds. When the frame fills, our fingerprint is returned instead, with a tenth of the bytes or
// less, and the peer splits or lists.
func ask(w *writer, hi int, upper *bound) bool {
	if scarce := len(w.out) > w.limit/4; scarce && hi-w.at > 1 {
		return w.digest(hi, upper)
	}
	return w.split(hi, upper)
}

// Need returns the ids that only the peer has, in order of arrival. They are claims until their
// events are fetched.
func (s *Session) Need() [][32]byte {
	places := make([]uint32, s.claims+1) // by number of the claim; there are too many claims to sort them
	for _, claim := range s.need {
		places[claim] = 1
	}
	n := uint32(0)
	for claim, needed := range places {
		places[claim] = n
		n += needed
	}
	ids := make([][32]byte, n)
	for id, claim := range s.need {
		ids[places[claim]] = id
	}
	return ids
}

// Have returns the ids that only the set has, oldest first.
func (s *Session) Have() [][32]byte {
	ids := make([][32]byte, 0, s.haves)
	for i, only := range s.have {
		if only {
			ids = append(ids, s.set.ids[i])
		}
	}
	return ids
}

// TheirLen returns the number of the peer's items, once the session is done.
func (s *Session) TheirLen() int { return s.set.Len() - s.haves + len(s.need) }
