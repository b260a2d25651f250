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
	"relayname": relayName, "identifier": identifier,
}

// identifier returns the identifier in the address of a repository.
func identifier(ref string) string {
	if r, err := graspsync.ParseRepoRef(ref); err == nil {
		return r.Identifier
	}
	return ref
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

// part is a piece of a line: text, and a name after it, which is shown as Short and links to the
// question Ask.
type part struct{ Text, Name, Short, Ask string }

// name matches git objects, events, keys, repositories and relays.
var name = regexp.MustCompile(`object [0-9a-f]{40,64}\b|\b[0-9a-f]{64}\b|npub1[0-9a-z]{58}(/[^\s,;:()]*[^\s,;:().])?|(wss?|https?)://[^\s,;()]*[^\s,;:().]`)

var keys = regexp.MustCompile(`npub1[0-9a-z]{58}`)

func parts(line string) (out []part) {
	line = web.Text(line)
	for at := name.FindStringIndex(line); at != nil; at = name.FindStringIndex(line) {
		p := part{Text: line[:at[0]], Name: line[at[0]:at[1]]}
		owner, identifier, isRepo := strings.Cut(p.Name, "/")
		object, isObject := strings.CutPrefix(p.Name, "object ")
		switch {
		case isObject:
			p.Text, p.Name, p.Short = p.Text+"object ", object, web.Short(object)
		case strings.HasPrefix(p.Name, "ws"):
			p.Short, p.Ask = p.Name, p.Name
		case strings.HasPrefix(p.Name, "http"):
			p.Short = keys.ReplaceAllStringFunc(p.Name, web.Short)
			if p.Short != p.Name {
				p.Ask = p.Name // a clone URL
			}
		case isRepo:
			p.Short, p.Ask = web.Short(owner)+"/"+identifier, p.Name
		case owner[0] == 'n':
			p.Short = web.Short(owner)
		default:
			p.Short, p.Ask = web.Short(p.Name), p.Name
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
