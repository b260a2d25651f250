package wire

import (
	"encoding/binary"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/graspsync/graspsync"
)

// malformed is an error in our own words about an invalid message.
type malformed string

func (m malformed) Error() string { return ErrMalformed.Error() + ": " + string(m) }

func (m malformed) Unwrap() error { return ErrMalformed }

// scanner reads JSON text. It never reads beyond the end and never backwards, so each read takes
// time in proportion to the text.
type scanner struct {
	data  []byte
	pos   int
	depth int // maximum nesting
}

// peek returns the current byte, or 0 at the end. A NUL byte is never valid JSON outside strings,
// so both cases may be treated alike.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// accept moves past c if it is the next byte.
func (s *scanner) accept(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// space moves past white space.
func (s *scanner) space() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// literal moves past word if it is next and no letter or digit follows it.
func (s *scanner) literal(word string) bool {
	end := s.pos + len(word)
	if end > len(s.data) || string(s.data[s.pos:end]) != word {
		return false
	}
	if end < len(s.data) && isWord(s.data[end]) {
		return false
	}
	s.pos = end
	return true
}

func isWord(c byte) bool {
	return c-'0' < 10 || c-'a' < 26 || c-'A' < 26 || c == '_' || c >= utf8.RuneSelf
}

// plain returns the index of the first byte from i on that needs attention in a JSON string: a
// quote, a backslash, a control byte or a byte above ASCII. It returns len(b) if there is none. It
// tests eight bytes together.
func plain(b []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote := x ^ '"'*ones
		slash := x ^ '\\'*ones
		// Each term sets the high bit of the bytes that it searches. A subtraction may borrow from
		// a higher byte, but only above a byte that was found, and only the lowest one counts.
		found := (x | (x - ' '*ones) | (quote-ones)&^quote | (slash-ones)&^slash) & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
	}
	return i
}

// str reads a string and appends its value to dst. It rejects control bytes, invalid UTF-8, unknown
// escapes and lone surrogates, because programs read them differently. dst grows by at most the
// length of the string.
func (s *scanner) str(dst []byte) ([]byte, error) {
	if !s.accept('"') {
		return dst, malformed("no string where one is needed")
	}
	for {
		end := plain(s.data, s.pos)
		if end == len(s.data) {
			return dst, malformed("string without end")
		}
		dst = append(dst, s.data[s.pos:end]...)
		s.pos = end
		switch c := s.data[end]; {
		case c == '"':
			s.pos++
			return dst, nil
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return dst, err
			}
			dst = utf8.AppendRune(dst, r)
		case c < ' ':
			return dst, malformed("control byte in a string")
		default:
			size, ok := foreign(s.data[end:])
			if !ok {
				return dst, malformed("string is not UTF-8")
			}
			dst = append(dst, s.data[end:end+size]...)
			s.pos += size
		}
	}
}

// foreign returns the length of the run of characters above ASCII at the start of b, and whether it
// is valid UTF-8.
func foreign(b []byte) (size int, ok bool) {
	for size < len(b) && b[size] >= utf8.RuneSelf {
		r, n := utf8.DecodeRune(b[size:])
		if r == utf8.RuneError && n == 1 {
			return size, false
		}
		size += n
	}
	return size, true
}

// escape reads an escape sequence, beginning with the backslash.
func (s *scanner) escape() (rune, error) {
	if s.pos+1 >= len(s.data) {
		return 0, malformed("string without end")
	}
	c := s.data[s.pos+1]
	if c == 'u' {
		return s.unicode()
	}
	s.pos += 2
	switch c {
	case '"', '\\', '/':
		return rune(c), nil
	case 'b':
		return '\b', nil
	case 'f':
		return '\f', nil
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	}
	return 0, malformed("unknown escape in a string")
}

// unicode reads \uXXXX, or a surrogate pair of two.
func (s *scanner) unicode() (rune, error) {
	r, ok := hex4(s.data, s.pos)
	if !ok {
		return 0, malformed("unknown escape in a string")
	}
	s.pos += 6
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	low, ok := hex4(s.data, s.pos)
	if ok {
		if r := utf16.DecodeRune(r, low); r != utf8.RuneError {
			s.pos += 6
			return r, nil
		}
	}
	return utf8.RuneError, malformed("lone surrogate in a string")
}

// hex4 reads \uXXXX at i.
func hex4(b []byte, i int) (rune, bool) {
	if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[i+2 : i+6] {
		d := rune(c)
		switch {
		case c-'0' < 10:
			d -= '0'
		case c-'a' < 6:
			d -= 'a' - 10
		case c-'A' < 6:
			d -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | d
	}
	return r, true
}

// rawString reads a string and returns its value, which is a part of the text if possible and
// otherwise a copy.
func (s *scanner) rawString() ([]byte, error) {
	if start := s.pos + 1; s.peek() == '"' {
		if end := plain(s.data, start); end < len(s.data) && s.data[end] == '"' {
			s.pos = end + 1
			return s.data[start:end], nil
		}
	}
	return s.str(nil)
}

// text reads a string for people and returns at most its first most bytes, cut between characters.
// Values that str rejects are replaced by U+FFFD, and control bytes are kept.
func (s *scanner) text(most int) (string, error) {
	start := s.pos
	if err := s.skipString(); err != nil {
		return "", err
	}
	end := s.pos - 1
	s.pos = start + 1
	var b strings.Builder
	for s.pos < end {
		r := s.anyRune()
		if b.Len()+utf8.RuneLen(r) > most {
			break
		}
		b.WriteRune(r)
	}
	s.pos = end + 1
	return b.String(), nil
}

// anyRune reads one character of a string, also an invalid one.
func (s *scanner) anyRune() rune {
	if s.data[s.pos] == '\\' {
		start := s.pos
		r, err := s.escape()
		if err == nil {
			return r
		}
		if s.pos == start { // \u without four digits
			s.pos += 2
		}
		return utf8.RuneError
	}
	r, n := utf8.DecodeRune(s.data[s.pos:])
	s.pos += n
	return r
}

// integer reads a whole number from 0 to most, without fraction or exponent.
func (s *scanner) integer(most int64) (int64, error) {
	start := s.pos
	var n int64
	for c := s.peek(); c-'0' < 10; c = s.peek() {
		n = n*10 + int64(c-'0')
		s.pos++
		if n > most {
			return 0, malformed("number out of range")
		}
	}
	switch {
	case s.pos == start:
		return 0, malformed("no whole number where one is needed")
	case s.data[start] == '0' && s.pos > start+1:
		return 0, malformed("number with a leading zero")
	}
	return n, s.numberEnd()
}

// toValid returns b as text, with U+FFFD in place of invalid UTF-8.
func toValid(b []byte) string {
	b = b[:min(len(b), graspsync.MaxText+utf8.UTFMax)]
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
