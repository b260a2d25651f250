package statuspage_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/internal/browsertest"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// shots, a folder, has the tests below leave pictures of the pages there, to be looked at.
var shots = os.Getenv("STATUSPAGE_SHOTS")

// front serves a page until the test ends.
func front(t *testing.T, s *server, change func(*statuspage.Config)) string {
	t.Helper()
	f := httptest.NewServer(newPage(t, s, func(c *statuspage.Config) {
		c.Explain = func(_ context.Context, q string) (string, error) {
			return "You asked about " + q + ".\n  Nothing is known of it.", nil
		}
		if change != nil {
			change(c)
		}
	}))
	t.Cleanup(func() {
		f.CloseClientConnections() // those that are followed live never end by themselves
		f.Close()
	})
	return f.URL
}

// In a real browser, by a server of the test.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("a browser takes its time")
	}
	b := browsertest.Start(t)
	for name, test := range map[string]func(*testing.T, *browsertest.Browser){
		"views": browserViews, "live": browserFollowsLive, "without scripts": browserWithoutScripts, "hostile names": browserHostileNames,
	} {
		t.Run(name, func(t *testing.T) { test(t, b) })
	}
}

// Each view, in light and dark, wide and on a phone: nothing is complained about, nothing is beyond the
// edge of the screen, and all text can be read.
func browserViews(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	s := large(500, 2500)
	at := front(t, s, nil)
	for name, how := range map[string]browsertest.Look{
		"light": {}, "dark": {Dark: true}, "phone": {Width: 360, Height: 740}, "dark phone": {Width: 360, Height: 740, Dark: true},
	} {
		tab := b.Tab(t, how)
		for i, path := range paths(s) {
			if name != "light" && i%2 == 1 && shots == "" {
				continue // every second one, for the sake of time: they share their styles
			}
			tab.Open(at + path)
			require.Empty(t, tab.Problems(), "%s, %s", path, name)
			require.LessOrEqual(t, tab.Eval(`document.documentElement.scrollWidth - innerWidth`), 0.0, "%s, %s: it scrolls sideways", path, name)
			require.Equal(t, "", tab.Eval(faint), "%s, %s: text without contrast (WCAG AA)", path, name)
			if shots != "" {
				tab.Shot(filepath.Join(shots, fmt.Sprintf("%s %.12s.png", name, strings.ReplaceAll(path, "/", "_"))))
			}
		}
	}
}

// faint is a script that returns the first text with less contrast than WCAG 2.2 AA asks for.
const faint = `(() => {
	const rgb = (c) => c.match(/[\d.]+/g).map(Number);
	const light = (c) => { const [r, g, b] = rgb(c).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor, v = rgb(c); if (v.length < 4 || v[3] > 0) return c; } return 'rgb(255, 255, 255)'; };
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; (n = walker.nextNode());) {
		const e = n.parentElement, style = getComputedStyle(e);
		if (!n.data.trim() || style.visibility === 'hidden' || !e.getClientRects().length) continue;
		const a = light(style.color), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
		if (ratio < (large ? 3 : 4.5)) return n.data + ': ' + ratio.toFixed(2);
	}
	return '';
})()`

// What changes is there without the page being loaded again, and what whoever looks is doing is left
// alone: the focus, a selection, a form that is being filled in. It can be stopped.
func browserFollowsLive(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	s := large(60, 60)
	at := front(t, s, nil)
	tab := b.Tab(t, browsertest.Look{})
	tab.Open(at + "/relays")
	tab.Await(`document.getElementById('following').textContent.includes('Followed live')`)
	tab.Eval(`window.sameDocument = true; document.querySelector('tbody a').focus(); document.getElementById('rq').value = 'half a wo';
		getSelection().selectAllChildren(document.querySelector('tbody tr:nth-child(2) a'))`)
	s.change(func(st *relaysync.Status, _ *purgatory.Status) {
		st.Relays[0].Stored, st.Relays[1].Stored = 7_654_321, 7_654_322
	})
	tab.Await(`document.querySelector('tbody').textContent.includes('7,654,321')`)
	require.Equal(t, true, tab.Eval(`window.sameDocument && document.activeElement === document.querySelector('tbody a') && document.getElementById('rq').value === 'half a wo'`))
	require.Equal(t, "relay001.example.com", tab.Eval(`getSelection().toString()`))
	s.change(func(st *relaysync.Status, _ *purgatory.Status) { st.Relays = st.Relays[:7] })
	tab.Await(`document.querySelectorAll('tbody tr').length === 7`)
	s.change(func(st *relaysync.Status, _ *purgatory.Status) { st.Relays = large(30, 1).status.Relays })
	tab.Await(`document.querySelectorAll('tbody tr').length === 30`)
	tab.Click("#following button")
	require.Equal(t, "Not followed. Go on", tab.Eval(`document.getElementById('following').textContent`))
	tab.Eval(`window.count = document.querySelector('main').dataset.followed`)
	s.change(func(st *relaysync.Status, _ *purgatory.Status) { st.Relays = st.Relays[:3] })
	tab.Eval(`new Promise((done) => setTimeout(done, 2500))`)
	require.Equal(t, true, tab.Eval(`window.count === document.querySelector('main').dataset.followed`))
	tab.Click("#following button")
	tab.Await(`document.querySelectorAll('tbody tr').length === 3`)
	tab.Open(at + "/")
	s.change(func(st *relaysync.Status, _ *purgatory.Status) { st.Synced = true })
	tab.Await(`document.querySelector('[role=status]').textContent.includes('In sync')`)
	require.Empty(t, tab.Problems())
}

// Without JavaScript, and with the keyboard alone.
func browserWithoutScripts(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	s := large(60, 60)
	at := front(t, s, nil)
	tab := b.Tab(t, browsertest.Look{NoScript: true})
	tab.Open(at + "/")
	require.Contains(t, tab.Eval(`document.getElementById('following').textContent`), "As of ")
	require.Contains(t, tab.Eval(`document.querySelector('main').textContent`), "of 60 connected")
	tab.Press("Tab", "", 9)
	require.Equal(t, "Skip to content", tab.Eval(`document.activeElement.textContent`))
	for range 6 { // past the five views
		tab.Press("Tab", "", 9)
	}
	require.Equal(t, "ask", tab.Eval(`document.activeElement.id`))
	tab.Type("npub1<b>/x y")
	tab.Press("Enter", "\r", 13)
	tab.Await(`location.pathname === "/explain" && document.readyState === "complete"`)
	require.Equal(t, "You asked about npub1<b>/x y.\n  Nothing is known of it.\n", tab.Eval(`document.querySelector('.answer').textContent`))
	require.Equal(t, "npub1<b>/x y", tab.Eval(`document.getElementById('ask').value`))
	tab.Open(at + "/relays?q=relay01")
	require.Equal(t, 10.0, tab.Eval(`document.querySelectorAll('tbody tr').length`))
	require.Empty(t, tab.Problems())
}

// Names that are scripts, markup or directions stay text: as the page comes, and as it is followed.
func browserHostileNames(t *testing.T, b *browsertest.Browser) {
	t.Helper()
	text := `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>` + "\u202eevil\"'" + `</td></table>`
	s := hostile(text)
	var answer string
	at := front(t, s, func(c *statuspage.Config) {
		c.Name = text
		c.Explain = func(context.Context, string) (string, error) { return answer, nil }
	})
	answer = text
	tab := b.Tab(t, browsertest.Look{})
	for _, path := range []string{"/", "/relays", "/repositories", "/git", "/dropped", "/explain?q=x", "/relay?url=" + s.status.Relays[0].URL.String()} {
		tab.Open(at + path)
		if path != "/explain?q=x" {
			tab.Await(`document.querySelector('main').dataset.followed > 0`)
		}
		s.change(func(st *relaysync.Status, git *purgatory.Status) {
			st.Repos++
			for i := range st.Relays {
				st.Relays[i].LastError = fmt.Sprint(st.Repos, text)
			}
		})
		if path == "/relays" {
			tab.Await(fmt.Sprintf(`document.querySelector('main').textContent.includes('%d<img src=x')`, s.Status().Repos))
		}
		require.Equal(t, 0.0, tab.Eval(`document.images.length + document.querySelectorAll('script:not([src="assets/live.js"])').length`), path)
		require.Equal(t, false, tab.Eval(`'pwned' in window`), path)
		require.Equal(t, false, tab.Eval(`document.body.textContent.includes('\u202e')`), path)
		require.Empty(t, tab.Problems(), path)
	}
}
