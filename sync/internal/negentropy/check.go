package negentropy

import "errors"

// go-nostr, which most Go relays use, misreads numbers from 2^56 on.
const maxTime = 1<<56 - 1

// Check validates a message of a client without a set. Another protocol version is valid, because
// the reply to it is this version.
func Check(msg []byte) error {
	w := newWriter(NewSet(nil), 0)
	_, err := w.reply(msg, func(s *section, _ int) (fits bool, err error) {
		if s.upper.time != infinity && s.upper.time > maxTime {
			return false, violation("time %d", s.upper.time)
		}
		return true, nil
	})
	if errors.Is(err, errVersion) {
		return nil
	}
	return err
}
