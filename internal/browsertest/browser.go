// Package browsertest tests pages in headless Chromium by the DevTools protocol. Tests are skipped
// if Chromium is not installed.
package browsertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

const (
	startTimeout = 30 * time.Second // cold start on a busy machine
	callTimeout  = 20 * time.Second
)

// Browser is a running Chromium.
type Browser struct {
	conn *websocket.Conn

	mu sync.Mutex
	// guarded by mu
	last    int
	answers map[int]chan reply
	tabs    map[string]*Tab // by session
	ended   error
}

// reply is an answer or an event of the browser.
type reply struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Session string          `json:"sessionId"`
}

// Start runs a browser until the test ends. It skips the test if there is none. The Debian package
// is chromium.
func Start(t *testing.T) *Browser {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("no chromium is installed: the pages are not looked at in a browser")
	}
	dir, err := os.MkdirTemp("", "browser") // not t.TempDir, because Chromium may write a moment longer
	require.NoError(t, err)
	cmd := exec.Command(program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
		"--user-data-dir="+dir, "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-default-apps", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to kill its children too
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	address := address(t, filepath.Join(dir, "DevToolsActivePort"))
	ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, address, nil)
	require.NoError(t, err)
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	conn.SetReadLimit(64 << 20) // screenshots
	b := &Browser{conn: conn, answers: make(map[int]chan reply), tabs: make(map[string]*Tab)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.read()
	}()
	t.Cleanup(func() {
		_ = conn.CloseNow()
		<-done
	})
	return b
}

// address waits for the address at which the browser listens.
func address(t *testing.T, file string) string {
	t.Helper()
	for began := time.Now(); time.Since(began) < startTimeout; time.Sleep(20 * time.Millisecond) {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		var port, path string
		if lines.Scan() {
			port = lines.Text()
		}
		if lines.Scan() {
			path = lines.Text()
		}
		_ = f.Close()
		if path != "" {
			return "ws://127.0.0.1:" + port + path
		}
	}
	require.FailNow(t, "the browser did not start")
	return ""
}

// read dispatches messages until the connection ends.
func (b *Browser) read() {
	for {
		_, data, err := b.conn.Read(context.Background())
		if err != nil {
			b.mu.Lock()
			b.ended = err
			for _, ch := range b.answers {
				close(ch)
			}
			b.answers = nil
			b.mu.Unlock()
			return
		}
		var m reply
		if json.Unmarshal(data, &m) != nil {
			continue
		}
		b.mu.Lock()
		if ch := b.answers[m.ID]; ch != nil {
			delete(b.answers, m.ID)
			ch <- m
		} else if tab := b.tabs[m.Session]; tab != nil {
			tab.told(m.Method, m.Params)
		}
		b.mu.Unlock()
	}
}

// call calls a method of the browser, or of a session if it is not empty.
func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ch := make(chan reply, 1)
	b.mu.Lock()
	if b.ended != nil {
		b.mu.Unlock()
		return b.ended
	}
	b.last++
	id := b.last
	b.answers[id] = ch
	b.mu.Unlock()
	if params == nil {
		params = struct{}{}
	}
	data, err := json.Marshal(struct {
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
		Session string `json:"sessionId,omitempty"`
	}{id, method, params, session})
	if err != nil {
		return err
	}
	if err := b.conn.Write(ctx, websocket.MessageText, data); err != nil {
		return err
	}
	select {
	case m, ok := <-ch:
		switch {
		case !ok:
			return errors.New("the browser has ended")
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result == nil:
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}
