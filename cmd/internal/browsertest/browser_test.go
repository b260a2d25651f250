package browsertest

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
)

var shots = flag.String("shots", "", "`folder` for screenshots")

// browsers are the programs that the test looks for.
var browsers = []string{"chromium", "chromium-browser", "google-chrome", "headless-shell"}

// start starts a browser, and skips the test without one.
func start(t *testing.T) context.Context {
	t.Helper()
	for _, name := range browsers {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(time.Minute))
		ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
		t.Cleanup(cancel)
		ctx, cancel = chromedp.NewContext(ctx)
		t.Cleanup(cancel)
		return ctx
	}
	t.Skipf("no browser is installed, so the pages were not checked: want one of %s", strings.Join(browsers, ", "))
	return nil
}

// inspect is a JavaScript function that returns the faults of a page.
//
//go:embed inspect.js
var inspect string

func TestPagesInABrowser(t *testing.T) {
	racetest.Amounts(t)
	browser := start(t)
	site, repository := public(t)
	busy, empty := status(t, catchingUp(t)), status(t, &state{status: relaysync.Status{At: time.Now()}})
	s := catchingUp(t)
	s.status.Synced, s.status.Git = true, relaysync.GitStatus{Complete: 120}
	s.status.Relays = s.status.Relays[:1]
	s.status.Relays[0].Synced, s.status.Relays[0].Confirmed = true, s.status.Relays[0].Wanted
	s.git.Announcements, s.git.States, s.git.PullRequests = 0, 0, 0
	synced := status(t, s)
	for name, at := range map[string]string{
		"front": site + "/", "search": query(site+"/", "q", "nothing"), "repository": site + repository, "missing": site + "/missing",
		"overview": busy + "/", "synced": synced + "/", "repositories": busy + "/repositories", "relays": busy + "/relays",
		"git": busy + "/git",
		"ask": busy + "/explain", "explain": query(busy+"/explain", "q", "project-000"), "failed": query(busy+"/explain", "q", "nothing"), "empty": empty + "/",
	} {
		t.Run(name, func(t *testing.T) { look(t, browser, name, at) })
	}
}

// look opens a page in a tab, and checks it at each width in light and dark.
func look(t *testing.T, browser context.Context, name, at string) {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var said []string // errors in the console, such as violations of the Content-Security-Policy
	require.NoError(t, chromedp.Listen(ctx, func(e any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			said = append(said, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			if e.Entry.URL != at || !strings.Contains(e.Entry.Text, "status of 404") { // of the missing page itself
				said = append(said, fmt.Sprint(e.Entry.Source, ": ", e.Entry.Text))
			}
		}
	}))
	for _, width := range []int64{1280, 768, 390} {
		for _, scheme := range []string{"light", "dark"} {
			require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), dressed(scheme), chromedp.Navigate(at)))
			faults, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](inspect))
			require.NoError(t, err)
			assert.Empty(t, faults, "%s at %d pixels, %s", name, width, scheme)
			if *shots == "" {
				continue
			}
			picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(*shots, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o600))
		}
	}
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, said, name)
}

// dressed sets the color scheme that the user prefers.
func dressed(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}
