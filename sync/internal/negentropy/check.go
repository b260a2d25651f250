package negentropy

import "errors"

// go-nostr, which most Go relays use, misreads numbers from 2^56 on.
const mostTime = 1<<56 - 1

// Check validates a message of a client without a set. Another protocol version is valid, because
// the reply to it is this version.
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
