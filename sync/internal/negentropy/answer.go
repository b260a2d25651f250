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
	w := newWriter(s, frameSize)
	reply, err = w.reply(msg, func(sec *section, hi int) (fits bool, err error) {
		switch {
		case sec.mode == modeIDs:
			return w.list(hi, &sec.upper), nil
		case sec.mode == modeFingerprint && !w.matches(sec.fingerprint, hi):
			return w.split(hi, &sec.upper), nil
		}
		w.settle(hi, &sec.upper)
		return true, nil
	})
	if errors.Is(err, errVersion) {
		return []byte{version}, nil
	}
	return reply, err
}

// reply passes each section of a message to answer, with the index above its last item, until
// answer finds no room. The rest of the message is only validated, because the peer returns to it.
func (w *writer) reply(msg []byte, answer func(sec *section, hi int) (fits bool, err error)) ([]byte, error) {
	if err := checkVersion(msg); err != nil {
		return nil, err
	}
	r := reader{rest: msg[1:]}
	var sec section // one for all, because it is on the heap
	for full := false; ; {
		var ok bool
		var err error
		sec, ok, err = r.next()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return w.out, nil
		case full:
			continue
		}
		fits, err := answer(&sec, w.set.search(w.at, &sec.upper))
		if err != nil {
			return nil, err
		}
		if full = !fits; full {
			w.rest()
		}
	}
}

func (w *writer) matches(fp []byte, hi int) bool {
	ours := w.set.fingerprint(w.at, hi)
	return bytes.Equal(fp, ours[:])
}
