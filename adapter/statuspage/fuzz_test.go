package statuspage_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/statuspage"
)

// hostile is a server every text of which is a stranger's. What a type lets through only by its parser
// is what that makes of the text, if it takes it.
func hostile(text string) *server {
	s := large(2, 2)
	fill(reflect.ValueOf(&s.status).Elem(), text)
	fill(reflect.ValueOf(&s.git).Elem(), text)
	for i := range s.status.Relays {
		r := &s.status.Relays[i]
		if u, err := graspsync.ParseRelayURL("wss://relay.example/" + text); err == nil {
			r.URL = u
		}
		r.Learned = map[string]int{text: 1}
	}
	s.refs = []graspsync.RepoRef{{Identifier: text}}
	s.status.Events.Sources = nil
	s.status.At, s.git.At = time.Now(), time.Now()
	for i := range s.git.Waiting {
		s.git.Waiting[i].Repos = []graspsync.RepoRef{{Identifier: text}, s.refs[0]}
	}
	return s
}

// fill puts a text wherever there can be one.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type() != reflect.TypeFor[time.Time]() {
				fill(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Map:
		if v.CanSet() && v.Type().Key().Kind() == reflect.String && v.Type().Elem().Kind() == reflect.Uint64 {
			v.Set(reflect.MakeMap(v.Type()))
			v.SetMapIndex(reflect.ValueOf(text).Convert(v.Type().Key()), reflect.ValueOf(uint64(3)))
		}
	}
}

// Whatever strangers write, pages are what they would be with harmless texts: the same elements with
// the same attributes, all that is loaded and linked to is ours, and no character moves anything.
func FuzzStrangersText(f *testing.F) {
	for _, text := range []string{
		"plain", `<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='x`, `javascript:alert(1)`, "</bdi></td></table><h1>",
		"\u202egnp.exe", "a\u2066b\u2069", "\x1b[2J\x1b]0;x\x07", "one\ntwo\r\nthree", "\xff\xfe\x00", "{{.}}", "]]>", "<!--", "&lt;script&gt;", "a`b${x}",
		"?q=1&url=wss://x.example#y", "../../admin", "data: {}\n\nevent: x", strings.Repeat("Z\u0301", 400), strings.Repeat("long", 2000), "\u200b\ufeff\u00ad", "🙂 مرحبا שלום",
	} {
		f.Add(text)
	}
	harmless := shapes(f, "plain")
	f.Fuzz(func(t *testing.T, text string) {
		for path, shape := range shapes(t, text) {
			if want := harmless[path]; text != "" && graspsync.Printable(text) != "" {
				require.Equal(t, want, shape, path)
			}
		}
	})
}

// shapes returns the elements and attributes of each view, after it has looked at all of their values.
func shapes(t testing.TB, text string) map[string][]string {
	t.Helper()
	s := hostile(text)
	if strings.TrimSpace(text) == "" || slices.Contains([]string{"healthy", "full", "hour", "all", "name"}, text) {
		return nil // of these a page says something else
	}
	page := newPage(t, s, func(c *statuspage.Config) {
		c.Name = text
		c.Ready = func(context.Context) error { return errors.New(strings.ReplaceAll(text, "\n", " ")) } // a line for each reason
		c.Version, c.Folder = text, text
		c.Explain = func(_ context.Context, q string) (explain.Explanation, error) {
			if q == text {
				return explain.Explanation{}, errors.New(text)
			}
			return explain.Explanation{Asked: text, Is: text, Answer: []string{"x" + strings.ReplaceAll(text, "\n", "")}}, nil
		}
	})
	out := make(map[string][]string)
	for name, path := range map[string]string{
		"overview": "/", "relays": "/relays", "relays searched": "/relays?q=" + url.QueryEscape(text), "repositories": "/repositories", "git": "/git",
		"explain": "/explain?q=x", "explain this": "/explain?q=" + url.QueryEscape(text),
	} {
		w := get(t, page, path)
		if name == "relays searched" || name == "explain" || name == "explain this" {
			check(t, w.Body.String(), name)
			continue // how much there is depends on the text
		}
		require.Equal(t, http.StatusOK, w.Code, path)
		out[name] = check(t, w.Body.String(), name)
	}
	return out
}

var ours = []string{"explain?q=", "?page=", "assets/"}

// check returns the shape of a page, and fails if something in it is not as it must be.
func check(t testing.TB, page, name string) (shape []string) {
	t.Helper()
	require.True(t, utf8.ValidString(page), name)
	for _, r := range page {
		require.True(t, r == '\n' || graspsync.IsPrintable(r), "%s: %U", name, r)
	}
	doc, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	each(doc, func(n *html.Node) {
		said := n.Data
		for _, a := range n.Attr {
			said += " " + a.Key
			require.False(t, strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "srcdoc", "%s: %s", name, a.Key)
			switch a.Key {
			case "src", "href", "action":
				local := slices.Contains([]string{"", ".", "#main", "metrics", "relays", "repositories", "git", "explain", "relays?state=gaps", "relays?state=dead"}, a.Val)
				require.True(t, local || slices.ContainsFunc(ours, func(p string) bool { return strings.HasPrefix(a.Val, p) }), "%s: %s=%q", name, a.Key, a.Val)
			}
		}
		require.NotEqual(t, "script", n.Data)
		shape = append(shape, said)
	})
	return shape
}
