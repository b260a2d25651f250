package web

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

var functions = template.FuncMap{
	"text": Text, "number": Number, "bytes": size, "ago": Ago, "until": until, "abs": absolute, "iso": iso,
	"lasts": Lasts, "npub": nip34.NPub, "noun": noun, "short": Short, "split": strings.Split, "when": newWhen,
}

type when struct{ Now, At time.Time }

func newWhen(now, at time.Time) when { return when{now, at} }

// Number formats a number with commas.
func Number(v any) string {
	s := fmt.Sprint(v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func size(v any) string {
	n, _ := strconv.ParseFloat(fmt.Sprint(v), 64) // templates pass numbers
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	for ; n >= 1024 && len(units) > 1; units = units[1:] {
		n /= 1024
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", n), ".0") + " " + units[0]
}

// Lasts formats a duration.
func Lasts(d time.Duration) string {
	switch s := int64(max(d, 0) / time.Second); {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 24*3600:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	default:
		return fmt.Sprintf("%d d %d h", s/86400, s%86400/3600)
	}
}

const day = 24 * time.Hour

// Ago formats a time before now, with rounded seconds.
func Ago(now, at time.Time) string {
	d := now.Sub(at)
	switch {
	case d < 10*time.Second:
		return "just now"
	case d < time.Minute:
		d = d.Truncate(10 * time.Second)
	case d > 30*day:
		return at.UTC().Format("2 Jan 2006")
	case d > 2*day:
		return fmt.Sprintf("%d d ago", d/day)
	}
	return Lasts(d) + " ago"
}

func until(now, at time.Time) string {
	d := at.Sub(now)
	switch {
	case d <= 0:
		return "due"
	case d < 10*time.Second:
		return "in seconds"
	case d < time.Minute:
		d = d.Truncate(10 * time.Second)
	}
	return "in " + Lasts(d)
}

func absolute(at time.Time) string { return at.UTC().Format("2 Jan 15:04:05 UTC") }

func iso(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// Short returns the beginning and end of a long word.
func Short(s string) string {
	r := []rune(Text(s))
	if len(r) <= 20 {
		return string(r)
	}
	return string(r[:12]) + "…" + string(r[len(r)-4:])
}

func noun(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// Text returns one line of printable text.
func Text(v any) string { return graspsync.Printable(fmt.Sprint(v)) }
