package statuspage

import (
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/internal/web"
	"github.com/graspsync/graspsync/nip34"
)

var functions = template.FuncMap{
	"trouble": explain.Trouble, "percent": percent, "sign": sign, "lines": lines, "parts": parts, "below": below, "address": address,
	"relayname": relayName,
}

func relayName(u graspsync.RelayURL) string {
	return web.Text(strings.TrimPrefix(u.String(), "wss://"))
}

const maxLines = 200

func lines(s string) []string {
	out := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if len(out) > maxLines {
		out = append(out[:maxLines], "...")
	}
	return out
}

func below(line string) bool { return strings.HasPrefix(line, " ") }

// part is text and a name after it, which is shown as Short and links to the question Ask.
type part struct{ Text, Name, Short, Ask string }

var (
	// name matches git objects, events, keys, repositories and relays.
	name = regexp.MustCompile(`\b[0-9a-f]{40,64}\b|npub1[0-9a-z]{58}(/[^\s,;:()]*[^\s,;:().])?|(wss?|https?)://[^\s,;()]*[^\s,;:().]`)
	// asked matches the names that can be asked about.
	asked = regexp.MustCompile(`^[0-9a-f]{64}$|npub1[0-9a-z]{58}/|^wss?:`)
	long  = regexp.MustCompile(`\b([0-9a-f]{40,64}|npub1[0-9a-z]{58})\b`)
)

func parts(line string) (out []part) {
	line = web.Text(line)
	for at := name.FindStringIndex(line); at != nil; at = name.FindStringIndex(line) {
		p := part{Text: line[:at[0]], Name: line[at[0]:at[1]]}
		p.Short = long.ReplaceAllStringFunc(p.Name, web.Short)
		if asked.MatchString(p.Name) && !strings.HasSuffix(p.Text, "object ") {
			p.Ask = p.Name
		}
		out, line = append(out, p), line[at[1]:]
	}
	return append(out, part{Text: line})
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", share*100) }

func address(s string) string {
	if ref, err := graspsync.ParseRepoRef(s); err == nil {
		return nip34.NPub(ref.Owner) + "/" + ref.Identifier
	}
	return s
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
