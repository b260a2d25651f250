package wire

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/graspsync/graspsync"
)

// malformed is an error in our own words about an invalid message.
type malformed string

func (m malformed) Error() string { return ErrMalformed.Error() + ": " + string(m) }

func (m malformed) Unwrap() error { return ErrMalformed }

// scanner reads JSON text, never beyond the end and never backwards.
type scanner struct {
	data []byte
	pos  int
	key  []byte // the last key of an object
}

// peek returns the current byte, or 0 at the end. A NUL byte is never valid JSON outside strings.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) accept(c byte) bool {
	if s.pos < len(s.data) && s.data[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) space() {
	for s.pos < len(s.data) && strings.IndexByte(" \t\n\r", s.data[s.pos]) >= 0 {
		s.pos++
	}
}

// literal moves past word if it is next and no letter or digit follows it.
func (s *scanner) literal(word string) bool {
	end := s.pos + len(word)
	if end > len(s.data) || string(s.data[s.pos:end]) != word || end < len(s.data) && isWord(s.data[end]) {
		return false
	}
	s.pos = end
	return true
}

func isWord(c byte) bool {
	return c-'0' < 10 || c-'a' < 26 || c-'A' < 26 || c == '_' || c >= utf8.RuneSelf
}

// plain returns the index of the first byte from i on that needs attention in a string, or len(b).
func plain(b []byte, i int) int {
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' && b[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// str reads a string and appends its value to dst, at most the length of the string. It rejects
// control bytes, invalid UTF-8, unknown escapes and lone surrogates, because programs read them
// differently.
func (s *scanner) str(dst []byte) ([]byte, error) {
	if !s.accept('"') {
		return dst, malformed("no string where one is needed")
	}
	for {
		end := plain(s.data, s.pos)
		dst = append(dst, s.data[s.pos:end]...)
		s.pos = end
		var r rune
		switch c := s.peek(); {
		case end == len(s.data):
			return dst, malformed("string without end")
		case c == '"':
			s.pos++
			return dst, nil
		case c < ' ':
			return dst, malformed("control byte in a string")
		case c == '\\':
			var err error
			if r, err = s.escape(); err != nil {
				return dst, err
			}
		default:
			var size int
			if r, size = utf8.DecodeRune(s.data[end:]); r == utf8.RuneError && size == 1 {
				return dst, malformed("string is not UTF-8")
			}
			s.pos += size
		}
		dst = utf8.AppendRune(dst, r)
	}
}

func (s *scanner) escape() (rune, error) {
	const letters, values = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if r, ok := hex4(s.data, s.pos); ok {
		s.pos += 6
		if !utf16.IsSurrogate(r) {
			return r, nil
		}
		low, _ := hex4(s.data, s.pos)
		if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
			return r, malformed("lone surrogate in a string")
		}
		s.pos += 6
		return r, nil
	}
	s.pos++
	i := strings.IndexByte(letters, s.peek())
	if i < 0 {
		return 0, malformed("unknown escape in a string")
	}
	s.pos++
	return rune(values[i]), nil
}

func hex4(b []byte, i int) (rune, bool) {
	if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[i+2:i+6]), 16, 16)
	return rune(n), err == nil
}

// text reads a string for people and returns at most its first most bytes. An invalid string is
// returned as written, with U+FFFD in place of invalid UTF-8.
func (s *scanner) text(most int) (string, error) {
	start := s.pos
	if err := s.skipString(); err != nil {
		return "", err
	}
	raw := s.data[start:s.pos]
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = strings.ToValidUTF8(string(raw[1:len(raw)-1]), "\uFFFD")
	}
	return graspsync.Clip(text, most), nil
}

// integer reads a whole number from 0 to most, without fraction or exponent.
func (s *scanner) integer(most int64) (int64, error) {
	start := s.pos
	if err := s.skipNumber(); err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(s.data[start:s.pos]), 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, malformed("no whole number within its range")
	}
	return n, nil
}

func (s *scanner) skip(level int) error {
	switch c := s.peek(); {
	case c == '"':
		return s.skipString()
	case c == '[':
		return s.array(level, func() error { return s.skip(level + 1) })
	case c == '{':
		return s.object(level, func() error { return s.skip(level + 1) })
	case c == '-' || c-'0' < 10:
		return s.skipNumber()
	case s.literal("true") || s.literal("false") || s.literal("null"):
		return nil
	}
	return malformed("no value where one is needed")
}

func (s *scanner) skipString() error {
	if !s.accept('"') {
		return malformed("no string where one is needed")
	}
	for {
		i := bytes.IndexByte(s.data[s.pos:], '"')
		if i < 0 {
			s.pos = len(s.data)
			return malformed("string without end")
		}
		s.pos += i + 1
		before := s.data[:s.pos-1]
		if (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 0 {
			return nil // the quote is not escaped
		}
	}
}

func (s *scanner) skipNumber() error {
	s.accept('-')
	ok := s.accept('0') || s.digits()
	if s.accept('.') {
		ok = ok && s.digits()
	}
	if s.accept('e') || s.accept('E') {
		if !s.accept('+') {
			s.accept('-')
		}
		ok = ok && s.digits()
	}
	if c := s.peek(); !ok || s.pos == len(s.data) || isWord(c) || c == '.' || c == '-' || c == '+' {
		return malformed("not a number")
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.peek()-'0' < 10 {
		s.pos++
	}
	return s.pos > start
}

// array reads an array at nesting depth level, and calls element at the start of each value.
func (s *scanner) array(level int, element func() error) error {
	return s.each(level, '[', ']', element)
}

// object reads an object at nesting depth level, and calls member with s.key at the start of each
// value.
func (s *scanner) object(level int, member func() error) error {
	return s.each(level, '{', '}', func() (err error) {
		if s.key, err = s.str(s.key[:0]); err != nil {
			return err
		}
		s.space()
		if !s.accept(':') {
			return malformed("no colon after a key")
		}
		s.space()
		return member()
	})
}

func (s *scanner) each(level int, start, end byte, value func() error) error {
	if !s.accept(start) {
		return malformed("no array or object where one is needed")
	}
	if level >= maxDepth {
		return malformed("nested too deep")
	}
	s.space()
	if s.accept(end) {
		return nil
	}
	for {
		if err := value(); err != nil {
			return err
		}
		s.space()
		if s.accept(end) {
			return nil
		}
		if !s.accept(',') {
			return malformed("no comma or end after a value")
		}
		s.space()
	}
}
