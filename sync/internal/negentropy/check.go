package negentropy

import "errors"

// go-nostr, which most Go relays answer with, reads numbers of 2^56 and more as something else.
const mostTime = 1<<56 - 1

// Check reports what is wrong with a message that a client sends, without looking at any set: the error wraps
// [ErrProtocol]. It returns nil for another version of the protocol, because the answer to that is our version.
func Check(msg []byte) error {
	if err := checkVersion(msg); err != nil {
		if errors.Is(err, errVersion) {
			return nil
		}
		return err
	}
	r := reader{rest: msg[1:]}
	for {
		s, ok, err := r.next()
		switch {
		case err != nil:
			return err
		case !ok:
			return nil
		case s.upper.time != infinity && s.upper.time > mostTime:
			return violation("time %d", s.upper.time)
		}
	}
}
