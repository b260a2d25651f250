package negentropy

import (
	"bytes"
	"errors"
)

// Answer is the side that is asked: it returns the reply to one message of a peer
// that reconciles with s. It keeps nothing between two messages.
//
// frameSize bounds the reply as [Limits].FrameSize does. A message of another
// version of the protocol is answered with our version, as the protocol asks; any
// other violation gives an error that wraps [ErrProtocol].
func Answer(s *Set, msg []byte, frameSize int) (reply []byte, err error) {
	if err := checkVersion(msg); err != nil {
		if errors.Is(err, errVersion) {
			return []byte{version}, nil
		}
		return nil, err
	}
	w := newWriter(s, frameSize)
	r := reader{rest: msg[1:]}
	for full := false; ; {
		sec, ok, err := r.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return w.out, nil
		}
		// A full frame doesn't excuse a message that is broken further on.
		if full {
			continue
		}
		if full = !answerSection(w, &sec); full {
			w.rest()
		}
	}
}

func answerSection(w *writer, sec *section) bool {
	hi := w.set.search(w.at, &sec.upper)
	switch {
	case sec.mode == modeIDs:
		return w.list(hi, &sec.upper)
	case sec.mode == modeFingerprint && !w.matches(sec.fingerprint, hi):
		return w.split(hi, &sec.upper)
	}
	w.settle(hi, &sec.upper)
	return true
}

// matches reports whether fp is the fingerprint of [w.at, hi).
func (w *writer) matches(fp []byte, hi int) bool {
	ours := w.set.fingerprint(w.at, hi)
	return bytes.Equal(fp, ours[:])
}
