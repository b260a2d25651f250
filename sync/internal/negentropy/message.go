package negentropy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
)

// ErrProtocol is wrapped by errors about a message that violates the protocol.
var ErrProtocol = errors.New("negentropy: protocol violation")

const (
	version         = 0x61 // protocol version 1
	fingerprintSize = 16
	idSize          = 32
	maxVarint       = 10 // digits of 7 bits in 64 bits
)

type mode uint64

const (
	modeSkip mode = iota
	modeFingerprint
	modeIDs
)

// bound is the exclusive upper end of a range: a time and an id prefix of size bytes.
type bound struct {
	time uint64
	id   [idSize]byte
	size int
}

func (b *bound) compare(other *bound) int {
	if c := cmp.Compare(b.time, other.time); c != 0 {
		return c
	}
	return bytes.Compare(b.id[:], other.id[:])
}

type section struct {
	upper       bound
	mode        mode
	fingerprint []byte // aliases the message
	ids         []byte // 32 bytes each; aliases the message
}

// reader decodes a message in place without allocations.
type reader struct {
	rest  []byte
	upper bound // end of the last section; the zero bound is the beginning
	end   int   // number of sections that ended at infinity
}

func (r *reader) next() (s section, ok bool, err error) {
	if len(r.rest) == 0 {
		return section{}, false, nil
	}
	if r.end > 1 {
		return section{}, false, violation("%d bytes after the last range", len(r.rest))
	}
	if s.upper, err = r.bound(); err != nil {
		return section{}, false, err
	}
	m, err := r.varint("mode")
	if err != nil {
		return section{}, false, err
	}
	switch s.mode = mode(m); s.mode {
	case modeSkip:
	case modeFingerprint:
		s.fingerprint, err = r.take(fingerprintSize, "fingerprint")
	case modeIDs:
		s.ids, err = r.idList()
	default:
		err = violation("unknown mode %d", m)
	}
	if r.end > 1 { // the range beyond infinity is empty
		s.mode = modeSkip
	}
	return s, err == nil, err
}

// bound reads the upper end of a section. If an id list that reaches infinity fills its frame, the
// reference implementation adds the fingerprint of the empty rest, which ends at infinity again.
func (r *reader) bound() (bound, error) {
	b, err := r.rawBound()
	if err != nil {
		return bound{}, err
	}
	switch {
	case b.time == infinity:
		r.end++
	case b.compare(&r.upper) <= 0:
		return bound{}, violation("bounds don't increase")
	}
	r.upper = b
	return b, nil
}

func (r *reader) rawBound() (b bound, err error) {
	offset, err := r.varint("timestamp")
	if err != nil {
		return bound{}, err
	}
	b.time = infinity
	if offset > 0 {
		b.time = r.upper.time + offset - 1
		if b.time < r.upper.time || b.time == infinity {
			return bound{}, violation("timestamp overflows")
		}
	}
	size, err := r.varint("length of an id prefix")
	if err != nil {
		return bound{}, err
	}
	if size > idSize || (size > 0 && b.time == infinity) {
		return bound{}, violation("id prefix of %d bytes", size)
	}
	prefix, err := r.take(int(size), "id prefix")
	b.size = copy(b.id[:], prefix)
	return b, err
}

// idList compares the count with the number of remaining bytes before it allocates.
func (r *reader) idList() ([]byte, error) {
	n, err := r.varint("number of ids")
	if err != nil {
		return nil, err
	}
	if n > uint64(len(r.rest)/idSize) {
		return nil, violation("%d ids in %d bytes", n, len(r.rest))
	}
	if n > 0 && r.end > 1 {
		return nil, violation("%d ids beyond infinity", n)
	}
	return r.take(int(n)*idSize, "ids")
}

func (r *reader) varint(what string) (v uint64, err error) {
	for i, c := range r.rest {
		if i == maxVarint || v > 1<<57-1 {
			return 0, violation("%s overflows", what)
		}
		v = v<<7 | uint64(c&0x7f)
		if c < 0x80 {
			r.rest = r.rest[i+1:]
			return v, nil
		}
	}
	return 0, violation("%s cut short", what)
}

func (r *reader) take(n int, what string) ([]byte, error) {
	if n > len(r.rest) {
		return nil, violation("%s cut short", what)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b, nil
}

func appendVarint(dst []byte, v uint64) []byte {
	shift := 0
	for v>>shift > 0x7f && shift < 63 {
		shift += 7
	}
	for ; shift > 0; shift -= 7 {
		dst = append(dst, byte(v>>shift)|0x80)
	}
	return append(dst, byte(v)&0x7f)
}

func checkVersion(msg []byte) error {
	switch {
	case len(msg) == 0:
		return violation("empty message")
	case msg[0]&0xf0 != version&0xf0:
		return violation("first byte %#02x isn't a version", msg[0])
	case msg[0] != version:
		return fmt.Errorf("%w: %w %d", ErrProtocol, errVersion, msg[0]&0x0f)
	}
	return nil
}

// errVersion is the only violation that gets a reply.
var errVersion = errors.New("other version")

func violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}
