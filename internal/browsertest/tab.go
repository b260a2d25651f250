package browsertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Tab is a page of a browser. Failures end the test.
type Tab struct {
	t       *testing.T
	browser *Browser
	session string

	problems []string // guarded by browser.mu
}

// Look is the view of a page.
type Look struct {
	Width, Height int // of the window in pixels; defaults to 1200 by 900
	Dark          bool
	NoScript      bool
}

// Tab opens an empty page.
func (b *Browser) Tab(t *testing.T, how Look) *Tab {
	t.Helper()
	tab := &Tab{t: t, browser: b}
	var made struct {
		Target string `json:"targetId"`
	}
	require.NoError(t, b.call(t.Context(), "", "Target.createTarget", map[string]any{"url": "about:blank"}, &made))
	var attached struct {
		Session string `json:"sessionId"`
	}
	require.NoError(t, b.call(t.Context(), "", "Target.attachToTarget", map[string]any{"targetId": made.Target, "flatten": true}, &attached))
	tab.session = attached.Session
	b.mu.Lock()
	b.tabs[tab.session] = tab
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Audits"} {
		tab.do(domain+".enable", nil, nil)
	}
	if how.Width == 0 {
		how.Width, how.Height = 1200, 900
	}
	scheme := "light"
	if how.Dark {
		scheme = "dark"
	}
	tab.do("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": how.Width, "height": how.Height, "deviceScaleFactor": 1, "mobile": how.Width < 600,
	}, nil)
	tab.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	if how.NoScript {
		tab.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	}
	return tab
}

// told records problems of a page. The caller holds mu of the browser.
func (tab *Tab) told(method string, params json.RawMessage) {
	var p struct {
		Type  string `json:"type"`
		Entry struct {
			Source, Level, Text, URL string
		}
		Args []struct {
			Value       any
			Description string
		}
		Issue struct {
			Code    string
			Details json.RawMessage
		}
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if json.Unmarshal(params, &p) != nil {
		return
	}
	var said string
	switch {
	case method == "Log.entryAdded" && p.Entry.Level != "info" && p.Entry.Level != "verbose":
		said = p.Entry.Source + ": " + p.Entry.Text + " " + p.Entry.URL
	case method == "Runtime.exceptionThrown":
		said = p.ExceptionDetails.Text + " " + p.ExceptionDetails.Exception.Description
	case method == "Runtime.consoleAPICalled" && (p.Type == "error" || p.Type == "warning" || p.Type == "assert"):
		said = fmt.Sprint("console: ", p.Args)
	case method == "Audits.issueAdded" && !strings.Contains(string(p.Issue.Details), "NavigationEntryMarkedSkippable"): // because no user has clicked
		said = "issue: " + p.Issue.Code + " " + string(p.Issue.Details)
	default:
		return
	}
	tab.problems = append(tab.problems, said)
}

// Problems returns the problems since the last call: console errors and warnings, exceptions, CSP
// violations, and failed loads.
func (tab *Tab) Problems() []string {
	tab.browser.mu.Lock()
	defer tab.browser.mu.Unlock()
	out := tab.problems
	tab.problems = nil
	return out
}

// Open loads a page.
func (tab *Tab) Open(url string) {
	tab.t.Helper()
	var got struct {
		Error string `json:"errorText"`
	}
	tab.do("Page.navigate", map[string]any{"url": url}, &got)
	require.Empty(tab.t, got.Error)
	tab.Await(`document.readyState === "complete" && location.href !== "about:blank"`)
}

// Eval returns the result of a script, even in a page whose own scripts are blocked.
func (tab *Tab) Eval(script string) any {
	tab.t.Helper()
	v, err := tab.eval(script)
	require.NoError(tab.t, err)
	return v
}

func (tab *Tab) eval(script string) (any, error) {
	var got struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	err := tab.browser.call(tab.t.Context(), tab.session, "Runtime.evaluate", map[string]any{
		"expression": script, "returnByValue": true, "awaitPromise": true,
	}, &got)
	if err == nil && got.Exception != nil {
		err = fmt.Errorf("%s %s", got.Exception.Text, got.Exception.Exception.Description)
	}
	return got.Result.Value, err
}

// Await waits until a script returns true.
func (tab *Tab) Await(script string) {
	tab.t.Helper()
	var v any
	var err error
	for began := time.Now(); time.Since(began) < callTimeout; time.Sleep(20 * time.Millisecond) {
		if v, err = tab.eval(script); v == true {
			return
		}
	}
	require.FailNow(tab.t, "waited in vain", "for %s, which is %v, %v", script, v, err)
}

// Click clicks on the first match of a selector.
func (tab *Tab) Click(selector string) {
	tab.t.Helper()
	tab.Eval(fmt.Sprintf(`document.querySelector(%q).click()`, selector))
}

// Press presses a key. key, text and code are its name, text and key code as in KeyboardEvent.
func (tab *Tab) Press(key, text string, code int) {
	tab.t.Helper()
	for _, typ := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": typ, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if text != "" && typ == "keyDown" {
			params["text"] = text
		}
		tab.do("Input.dispatchKeyEvent", params, nil)
	}
}

// Type types a text at the focus.
func (tab *Tab) Type(text string) {
	tab.t.Helper()
	tab.do("Input.insertText", map[string]any{"text": text}, nil)
}

// Shot saves a screenshot of the whole page.
func (tab *Tab) Shot(file string) {
	tab.t.Helper()
	var got struct {
		Data string `json:"data"`
	}
	tab.do("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &got)
	data, err := base64.StdEncoding.DecodeString(got.Data)
	require.NoError(tab.t, err)
	require.NoError(tab.t, os.WriteFile(file, data, 0o600))
}

func (tab *Tab) do(method string, params, result any) {
	tab.t.Helper()
	require.NoError(tab.t, tab.browser.call(tab.t.Context(), tab.session, method, params, result))
}
