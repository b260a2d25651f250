package graspsync

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxText is how much of a stranger's text is kept and shown, in bytes.
const MaxText = 300

// Printable makes a stranger's text fit for a log, an error, a status page and a terminal: one
// line of characters that [IsPrintable] has, of at most [MaxText] bytes, in valid UTF-8. Anything else, such
// as what moves a cursor, changes a colour or turns the direction of what follows, is escaped
// as in Go. What is printable already stays as it is.
func Printable(s string) string { return PrintableAtMost(s, MaxText) }

// PrintableAtMost is [Printable] for a text that may have another number of bytes.
func PrintableAtMost(s string, most int) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		piece := s[:size]
		switch {
		case r == utf8.RuneError && size == 1:
			piece = `\x` + strconv.FormatUint(uint64(s[0])|0x100, 16)[1:]
		case !IsPrintable(r):
			piece = strings.Trim(strconv.QuoteRuneToASCII(r), "'")
		}
		if b.Len()+len(piece) > most {
			break
		}
		b.WriteString(piece)
		s = s[size:]
	}
	return b.String()
}

// IsPrintable reports whether a character can be seen, or is a space, and changes nothing around it. That a
// font shows nothing for some letters and marks, such as U+3164 and U+FE0F, [unicode.IsPrint] does not know.
func IsPrintable(r rune) bool {
	return unicode.IsPrint(r) && r != '\u2800' && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// PrintableJSON returns a JSON text with all characters escaped that [IsPrintable] does not have, but for line
// feeds. It means the same.
func PrintableJSON(text []byte) []byte {
	var out []byte
	for _, r := range string(text) {
		if r == '\n' || IsPrintable(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, "\\u%04x", unit)
		}
	}
	return out
}

// Clip returns the first bytes of a text, at most most of them, and no half character.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// TimeText is a time for people who look at it at now: that of the day in UTC, with the date unless
// it is less than 12 hours away.
func TimeText(t, now time.Time) string {
	if d := t.Sub(now).Abs(); d < 12*time.Hour {
		return t.UTC().Format("15:04:05 UTC")
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
