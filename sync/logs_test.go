package sync_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// capture is a slog.Handler that keeps everything.
type capture struct {
	shared *captured
	attrs  []slog.Attr
}

type captured struct {
	mu      sync.Mutex
	records []logged // guarded by mu
}

type logged struct {
	level slog.Level
	msg   string
	at    time.Time
	attrs map[string]string
}

func newCapture() *capture { return &capture{shared: &captured{}} }

func (c *capture) logger() *slog.Logger                     { return slog.New(c) }
func (c *capture) Enabled(context.Context, slog.Level) bool { return true }
func (c *capture) WithGroup(string) slog.Handler            { return c }
func (c *capture) WithAttrs(as []slog.Attr) slog.Handler {
	return &capture{shared: c.shared, attrs: append(c.attrs[:len(c.attrs):len(c.attrs)], as...)}
}

func (c *capture) Handle(_ context.Context, r slog.Record) error {
	l := logged{level: r.Level, msg: r.Message, at: time.Now(), attrs: make(map[string]string)}
	for _, a := range c.attrs {
		l.attrs[a.Key] = a.Value.String()
	}
	r.Attrs(func(a slog.Attr) bool {
		l.attrs[a.Key] = a.Value.String()
		return true
	})
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	c.shared.records = append(c.shared.records, l)
	return nil
}

func (c *capture) find(msg string) (out []logged) {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	for _, l := range c.shared.records {
		if l.msg == msg {
			out = append(out, l)
		}
	}
	return out
}

// playGap makes a relay lose a live event. The daily pass finds it after found. If found is 0, the
// history of another repository that the event tags finds it.
func playGap(t *testing.T, net *relaytest.Network, cfg relaysync.Config, found time.Duration) *rig {
	t.Helper()
	a := net.Add("wss://a.example", relaytest.Behavior{})
	r, owner := hosted(t, net, cfg, "a.example")
	after(10 * time.Minute)
	silently(a, owner.Event(at(0), 1621, "missed", []string{"a", owner.Ref("repo").String()}, []string{"a", owner.Ref("other").String()}))
	after(5 * time.Minute)
	if found > 0 {
		after(found)
		return r
	}
	r.save(owner.Hosted(at(0), "other", us, "a.example"))
	after(time.Minute)
	return r
}

// A relay that withholds live events and serves them as history, or refuses every request, filled
// our log: a line for each event and each value.
func TestLogsOfAWithholdingRelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		logs := newCapture()
		r, owner := hosted(t, net, relaysync.Config{Logger: logs.logger()}, "a.example")
		defer r.stop()
		after(10 * time.Minute)
		for i := range 200 {
			silently(a, owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint(i)))
		}
		after(26 * time.Hour)
		require.GreaterOrEqual(t, r.relay("wss://a.example").Gaps, uint64(200), "they are counted")
		require.LessOrEqual(t, len(logs.find("daily pass found a missed event")), 3)
	})
}

// Logs were full of remote text: in colors, in lines of any length, without a rate limit.
func TestPromiseP11_RemoteText(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		evil := "\x1b[31mred\nlevel=ERROR msg=forged \u202etxt.exe " + strings.Repeat("\x01", 500) + strings.Repeat("x", 5000)
		var hosts []string
		var relays []*relaytest.Relay
		for i := range 5 { // one host, many relays
			hosts = append(hosts, fmt.Sprintf("a.example:%d", 8000+i))
			relays = append(relays, net.Add("wss://"+hosts[i], relaytest.Behavior{
				Handle: fails(evil), Negentropy: relaytest.NegNotice, NegText: "error: bad message " + evil,
			}))
		}
		down := net.Add("wss://down.example", relaytest.Behavior{DialError: errors.New(evil)})
		logs := newCapture()
		r, _ := hosted(t, net, relaysync.Config{Logger: logs.logger()}, append(hosts, "down.example")...)
		for range 60 {
			after(time.Second)
			for _, rel := range relays {
				rel.Broadcast(wire.Message{Type: wire.TypeNotice, Text: evil[:300]})
			}
		}
		after(5 * time.Minute)
		r.stop()
		require.NotEmpty(t, down.Dials())
		last := make(map[string]time.Time)
		with := 0
		for _, l := range logs.shared.records {
			for _, key := range []string{"error", "reason"} {
				text, ok := l.attrs[key]
				if !ok {
					continue
				}
				require.LessOrEqual(t, len(text), 300, l.msg)
				for _, r := range text {
					require.False(t, r < ' ' || r == 0x7f || r == 0x202e, "%s: %q", l.msg, text)
				}
				if !strings.Contains(text, "red") {
					continue
				}
				with++
				host, _, _ := strings.Cut(strings.TrimPrefix(l.attrs["relay"], "wss://"), ":")
				if at, ok := last[l.msg+host]; ok {
					require.GreaterOrEqual(t, l.at.Sub(at), time.Minute, l.msg)
				}
				last[l.msg+host] = l.at
			}
		}
		require.Greater(t, with, 3)
		require.Contains(t, r.relay("wss://down.example").LastError, "red")
		require.NotContains(t, r.relay("wss://down.example").LastError, "\x1b")
	})
}
