package wire

import (
	"crypto/sha256"
	"strconv"

	"github.com/graspsync/graspsync"
)

// maxKept is the maximum size of the buffer that an IDChecker keeps, in bytes. Most events fit.
const maxKept = 16 << 10

// IDChecker checks event ids (NIP-01) with a reused buffer. The zero value is ready. It is for one
// goroutine at a time.
type IDChecker struct{ buf []byte }

// Check reports whether the id of an event is the hash of its serialization.
func (c *IDChecker) Check(ev graspsync.Event) bool {
	b := append(c.buf[:0], `[0,"`...)
	b = append(b, ev.Event.PubKey...)
	b = append(b, `",`...)
	b = strconv.AppendInt(b, int64(ev.CreatedAt), 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(ev.Kind), 10)
	b = append(b, `,[`...)
	for i, tag := range ev.Tags {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for j, value := range tag {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendHashed(b, value)
		}
		b = append(b, ']')
	}
	b = append(b, `],`...)
	b = append(appendHashed(b, ev.Content), ']')
	if c.buf = b; cap(b) > maxKept {
		c.buf = nil
	}
	return sha256.Sum256(b) == ev.ID
}

// appendHashed appends s in quotes as NIP-01 defines it for ids. Invalid UTF-8 is unchanged.
func appendHashed(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\r':
			dst = append(dst, `\r`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
