package negentropy

import (
	"errors"
	"fmt"
	"slices"
)

// Sentinels that the errors of [Session.Step] wrap, next to [ErrProtocol].
var (
	// ErrRounds: the peer didn't converge within Limits.MaxRounds.
	ErrRounds = errors.New("negentropy: too many rounds")
	// ErrTooMany: the peer has more than Limits.MaxIDs ids that we don't have.
	ErrTooMany = errors.New("negentropy: too many ids")
)

// Limits bounds a session. The zero value takes all defaults.
type Limits struct {
	// FrameSize is the largest message that we send, in bytes; as hex on the wire
	// it is twice that. What doesn't fit is continued in the next round. Too large,
	// and relays drop the connection; too small, and large differences need more
	// rounds than MaxRounds. Values from 1 to 4095 count as 4096, negative ones as
	// no limit. Defaults to 30,000.
	FrameSize int
	// MaxRounds is how many messages of the peer are taken. A peer that still has
	// something to reconcile after the last of them ends the session with
	// [ErrRounds]. Defaults to 64, also if negative.
	MaxRounds int
	// MaxIDs is how many different ids a peer may claim that we don't have. With more the
	// session ends with [ErrTooMany]: at the latest when they are twice as many, or when it
	// would be done. Defaults to 200,000, also if negative.
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

// Session is the side that asks: it finds out which ids a peer has that we don't,
// and the other way round. Send what [Session.Open] returns, then give each answer
// to [Session.Step] and send the reply, until it is done.
//
// A Session is for one peer and one use, and not for concurrent use.
type Session struct {
	set    *Set
	limits Limits

	opened bool
	rounds int
	done   bool
	err    error

	need    idList
	have    spanList
	settled uint64
}

// NewSession starts a reconciliation of s, which may be shared, with one peer.
func NewSession(s *Set, l Limits) *Session {
	l = l.withDefaults()
	return &Session{
		set:    s,
		limits: l,
		need:   idList{limit: l.MaxIDs},
		have:   spanList{limit: s.Len() + 2},
	}
}

// Open returns the first message, the same at each call. The error is that of the
// session if it has failed already.
func (s *Session) Open() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.opened = true
	w := newWriter(s.set, s.limits.FrameSize)
	w.split(s.set.Len(), &bound{time: infinity})
	return w.out, nil
}

// Step takes the peer's answer and returns what to send next; if done, there is
// nothing to send and [Session.Need] and [Session.Have] are complete. msg is not
// kept.
//
// An error wraps [ErrProtocol], [ErrRounds] or [ErrTooMany] and ends the session;
// the ids found until then can still be had. Once done or failed, further calls
// change nothing and return the same.
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
	s.settled = max(s.settled, settledBy(reply))
	if s.rounds >= s.limits.MaxRounds {
		return nil, fmt.Errorf("%w: still differences after %d", ErrRounds, s.rounds)
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
		// What comes after a full frame is covered by its rest and will be sent
		// again, so it is only checked.
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

// ask makes the peer say more about [w.at, hi), which differs.
//
// The reference implementation splits the range or lists our ids. As long as there
// is plenty of room we do the same, since it takes the fewest rounds. With many
// differences the frame is what counts: then our fingerprint of the same range is
// sent back, for a tenth of the bytes or less, and the peer does the splitting or
// listing. That costs a round more only where the peer has many items and we have
// few; a single id, or none, is listed in any case, as that is hardly longer.
func ask(w *writer, hi int, upper *bound) bool {
	if scarce := len(w.out) > w.limit/4; scarce && hi-w.at > 1 {
		return w.digest(hi, upper)
	}
	return w.split(hi, upper)
}

// Need returns the ids that only the peer has, each once, in the order in which
// they came: oldest first with an honest peer. They are what the peer claims;
// nothing but fetching the events proves them. The slice is the caller's.
func (s *Session) Need() [][32]byte {
	s.need.compact()
	return slices.Clone(s.need.ids)
}

// Have returns the ids that only we have, oldest first. The slice is the caller's.
func (s *Session) Have() [][32]byte {
	s.have.compact()
	ids := make([][32]byte, 0, s.have.len())
	for _, sp := range s.have.spans {
		ids = append(ids, s.set.ids[sp.lo:sp.hi]...)
	}
	return ids
}

// Settled returns the second, Unix time, before which nothing is left to compare:
// every id that the peer showed there is known or in Need. The peer is asked about
// what is left of a failed session by beginning another one there.
func (s *Session) Settled() uint64 { return s.settled }

// settledBy reads where the first range begins about which a message of ours, which
// is well-formed, says something.
func settledBy(msg []byte) uint64 {
	r := reader{rest: msg[1:]}
	begin := r.upper.time
	for {
		sec, ok, err := r.next()
		if !ok || err != nil || sec.mode != modeSkip {
			return begin
		}
		begin = sec.upper.time
	}
}

// TheirLen returns how many items the peer showed to have, once the session is done.
func (s *Session) TheirLen() int {
	s.need.compact()
	s.have.compact()
	return s.set.Len() - s.have.len() + len(s.need.ids)
}

// OldestShared returns the created_at of the oldest item that both sides have, once
// the session is done; ok is false if there is none.
func (s *Session) OldestShared() (at uint64, ok bool) {
	s.have.compact()
	i := 0
	if sp := s.have.spans; len(sp) > 0 && sp[0].lo == 0 {
		i = int(sp[0].hi)
	}
	if i >= s.set.Len() {
		return 0, false
	}
	return s.set.times[i], true
}

// Rounds is how many messages of the peer were taken so far.
func (s *Session) Rounds() int { return s.rounds }
