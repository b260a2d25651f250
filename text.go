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

// MaxText is the maximum length of remote text in logs, errors and pages, in bytes.
const MaxText = 300

// Printable makes remote text safe for a log, an error, a page and a terminal: one line of valid
// UTF-8 of at most [MaxText] bytes, with characters that are not [IsPrintable] escaped as in Go.
func Printable(s string) string { return PrintableAtMost(s, MaxText) }

// PrintableAtMost is [Printable] with a maximum of most bytes.
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

// IsPrintable reports whether a character is visible or a space, and does not affect the text
// around it. It also rejects characters that fonts show as nothing, such as U+3164 and U+FE0F.
func IsPrintable(r rune) bool {
	return unicode.IsPrint(r) && r != '\u2800' && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// PrintableJSON returns an equivalent JSON text in which characters that are not [IsPrintable] are
// escaped, except line feeds.
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

// Clip returns the longest prefix of s of at most most bytes that does not end within a character.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// TimeText formats t in UTC for a reader at time now, without the date if t is within 12 hours of
// now.
func TimeText(t, now time.Time) string {
	if d := t.Sub(now).Abs(); d < 12*time.Hour {
		return t.UTC().Format("15:04:05 UTC")
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// enumName returns the name of a value of a type, or type(value).
func enumName[T ~uint8](v T, kind string, names ...string) string {
	if int(v) < len(names) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", kind, v)
}
