package statuspage

import (
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/purgatory"
)

// functions are the functions of templates. Text of strangers passes through text, in a bdi element
// (template "s"): text makes it one line of printable characters, html/template escapes it, and bdi
// isolates its direction.
var functions = template.FuncMap{
	"text": text, "trouble": explain.Trouble, "maintainers": explain.Maintainers, "number": number, "bytes": size, "ago": ago, "until": until, "abs": absolute, "iso": iso,
	"lasts": lasts, "percent": percent, "npub": npub, "subject": subject, "noun": noun, "sign": sign, "short": short, "lines": lines,
	"identifier": identifier, "relayname": relayName, "tab": newTab, "when": newWhen, "waits": newWaits, "reasons": newReasons,
}

// Arguments of shared templates.
type (
	tab struct {
		Href, Text string
		Here       bool
	}
	when  struct{ Now, At time.Time }
	waits struct {
		At      time.Time
		Asks    bool // the page can answer a question about it
		Waiting []purgatory.EntryStatus
	}
	reasonTable struct {
		Caption string
		Counts  []counted
	}
)

func newTab(name, href, text, here string) tab { return tab{href, text, name == here} }

func newWhen(now, at time.Time) when { return when{now, at} }

func newWaits(at time.Time, asks bool, waiting []purgatory.EntryStatus) waits {
	return waits{at, asks, waiting}
}

func newReasons(caption string, counts []counted) reasonTable {
	return reasonTable{caption, counts}
}

// relayName returns the URL of a relay without wss://.
func relayName(u graspsync.RelayURL) string { return text(strings.TrimPrefix(u.String(), "wss://")) }

// identifier returns the identifier in the address of a repository.
func identifier(ref string) string {
	if r, err := graspsync.ParseRepoRef(ref); err == nil {
		return r.Identifier
	}
	return ref
}

// text returns one line of printable text.
func text(v any) string { return graspsync.Printable(fmt.Sprint(v)) }

// maxLines is the maximum number of lines of an answer.
const maxLines = 200

// lines returns the lines of a text with their indentation.
func lines(s string) []string {
	out := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range out {
		rest := strings.TrimLeft(l, " \t")
		indent := strings.Count(l[:len(l)-len(rest)], "\t")*4 + strings.Count(l[:len(l)-len(rest)], " ")
		out[i] = strings.Repeat(" ", min(indent, 16)) + text(rest)
	}
	if len(out) > maxLines {
		out = append(out[:maxLines], "...")
	}
	return out
}

// number formats a number with commas.
func number(v any) string {
	s := fmt.Sprint(v)
	digits := strings.TrimPrefix(s, "-")
	for _, c := range digits {
		if c < '0' || c > '9' {
			return s
		}
	}
	var parts []string
	for len(digits) > 3 {
		parts = append(parts, digits[len(digits)-3:])
		digits = digits[:len(digits)-3]
	}
	parts = append(parts, digits)
	slices.Reverse(parts)
	return s[:len(s)-len(strings.TrimPrefix(s, "-"))] + strings.Join(parts, ",")
}

// size formats a number of bytes.
func size(v any) string {
	n, err := strconv.ParseFloat(fmt.Sprint(v), 64)
	if err != nil {
		return fmt.Sprint(v)
	}
	for _, unit := range []string{"bytes", "KiB", "MiB", "GiB"} {
		if n < 1024 {
			if unit == "bytes" || n >= 100 {
				return fmt.Sprintf("%.0f %s", n, unit)
			}
			return fmt.Sprintf("%.1f %s", n, unit)
		}
		n /= 1024
	}
	return fmt.Sprintf("%.1f TiB", n)
}

// lasts formats a duration with one unit.
func lasts(d time.Duration) string {
	switch s := int64(d / time.Second); {
	case d < 0:
		return "0 s"
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 24*3600:
		return two(s/3600, "h", s%3600/60, "min")
	default:
		return two(s/86400, "d", s%86400/3600, "h")
	}
}

func two(a int64, unit string, b int64, smaller string) string {
	if b == 0 {
		return fmt.Sprintf("%d %s", a, unit)
	}
	return fmt.Sprintf("%d %s %d %s", a, unit, b, smaller)
}

// ago formats a time before now. Seconds are rounded to tens, because a text that changes each
// second is distracting.
func ago(now, at time.Time) string {
	d := now.Sub(at)
	switch {
	case d < 10*time.Second:
		return "just now"
	case d < time.Minute:
		d = d.Truncate(10 * time.Second)
	}
	return lasts(d) + " ago"
}

// until formats a time after now.
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
	return "in " + lasts(d)
}

func absolute(at time.Time) string { return at.UTC().Format("2 Jan 15:04:05 UTC") }

func iso(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

func npub(k graspsync.PubKey) string {
	if s, err := nip19.EncodePublicKey(k.String()); err == nil {
		return s
	}
	return k.String()
}

// subject returns the subject of a rule, with keys as npub.
func subject(r Rule) string {
	if k, err := graspsync.ParsePubKey(r.Subject); err == nil && r.About == "author" {
		return npub(k)
	}
	if ref, err := graspsync.ParseRepoRef(r.Subject); err == nil {
		return npub(ref.Owner) + "/" + ref.Identifier
	}
	return r.Subject
}

// short returns the beginning and end of a long word.
func short(s string) string {
	r := []rune(text(s))
	if len(r) <= 20 {
		return string(r)
	}
	return string(r[:12]) + "…" + string(r[len(r)-4:])
}

// signs precede words, so that a state does not depend on color.
var signs = map[string]string{
	"live": "●", "live with gaps": "◍", "syncing": "◐", "connecting": "◔", "disconnected": "○",
	"healthy": "●", "degraded": "◍", "dead": "✕", "rate limited": "◌",
}

func sign(word string) string {
	if s, ok := signs[word]; ok {
		return s
	}
	return "·"
}

// noun returns the form of a noun for a number.
func noun(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
