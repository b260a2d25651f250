package negentropy

import (
	"bytes"
	"errors"
)

// Answer returns the reply to one message of a peer that reconciles with s. It is the answering
// side and keeps no state between messages.
//
// frameSize is the maximum size of the reply, like [Limits].FrameSize. The reply to another
// protocol version is this version, as the protocol requires. Any other violation returns an error
// that wraps [ErrProtocol].
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
		// The rest must be valid although the frame is full.
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

func (w *writer) matches(fp []byte, hi int) bool {
	ours := w.set.fingerprint(w.at, hi)
	return bytes.Equal(fp, ours[:])
}
