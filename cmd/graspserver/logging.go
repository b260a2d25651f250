package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	standard "log"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// newLogger returns a log for people, colored on a terminal, or of JSON objects.
func newLogger(to io.Writer, opt options) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(opt.LogLevel)) // checked by the parser; "" is info
	if opt.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level}))
	}
	file, ok := to.(*os.File)
	color := ok && term.IsTerminal(int(file.Fd()))
	return slog.New(tint.NewTextHandler(to, &tint.Options{Level: level, TimeFormat: time.DateTime, NoColor: !color, ReplaceAttr: readable}))
}

// readable replaces hex keys by npubs, and removes the numbers of a summary, which are for programs.
func readable(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 && groups[0] == statusKey {
		return slog.Attr{}
	}
	text := a.Value.String()
	if ref, err := graspsync.ParseRepoRef(text); err == nil {
		return slog.String(a.Key, nip34.NPub(ref.Owner)+"/"+ref.Identifier)
	}
	if key, err := graspsync.ParsePubKey(text); err == nil && a.Key != "event" {
		return slog.String(a.Key, nip34.NPub(key))
	}
	return a
}

// adopt writes lines of libraries that use the standard logger, such as the event database, to the log at level
// debug. The log then has one format.
func adopt(log *slog.Logger) {
	standard.SetFlags(0)
	standard.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer())
}

// banner logs what the server is and who commands it: as aligned lines for people, or as one record.
func banner(log *slog.Logger, identity nip34.Identity, addr net.Addr, opt options) {
	admins := make([]string, len(opt.Admin))
	for i, key := range opt.Admin {
		admins[i] = nip34.NPub(key)
	}
	if len(admins) == 0 {
		admins = []string{"nobody, set -admin"}
	}
	facts := []any{
		"version", version(), "domain", bare(opt.Domain), "address", addr.String(), "data", opt.Data, "relay", identity.RelayURL(),
		"clone", identity.CloneBase() + "/<npub>/<identifier>.git", "admins", strings.Join(admins, ", "),
	}
	if opt.LogFormat == "json" {
		log.Info("server started, it hosts repositories whose announcement lists relay and clone URL", facts...)
	} else {
		var text strings.Builder
		for i := 0; i < len(facts); i += 2 {
			fmt.Fprintf(&text, "\n  %-8s %s", facts[i], facts[i+1])
		}
		log.Info("server started, it hosts repositories whose announcement lists relay and clone URL" + text.String())
	}
}

// progressEvery is the time between two log lines while the server catches up.
const progressEvery = 10 * time.Second

// statusKey is the group of numbers in a summary.
const statusKey = "status"

// report logs the progress while the server catches up, and summaries of what has changed, until ctx
// ends.
func report(ctx context.Context, manager *relaysync.SyncManager, log *slog.Logger, every time.Duration) {
	tick := time.NewTicker(min(every, progressEvery))
	defer tick.Stop()
	var summary string
	summarized := time.Now()
	var events, git progress
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s, now := manager.Status(), time.Now()
		_, words := explain.Headline(s)
		done, all := 0, 0
		for _, r := range s.Relays {
			if r.Connected() {
				done, all = done+r.Confirmed, all+r.Wanted
			}
		}
		events.update(now, done, all)
		git.update(now, s.Git.All()-s.Git.Missing, s.Git.All())
		if events.percent()+git.percent() < 200 {
			log.Info("catching up", "percent", (events.percent()+git.percent())/2, "events", events.String(), "git", git.String())
		}
		text := fmt.Sprint(words, s.LogValue())
		if now.Sub(summarized) < every || text == summary {
			continue
		}
		summary, summarized = text, now
		log.Info("summary", "state", words, "repositories", s.Git.All(), "relays", len(s.Relays), "stored", s.Events.Stored, statusKey, s)
	}
}

// progress is the progress of one kind of work.
type progress struct {
	since           time.Time
	from, done, all int // from is done at since
	left            time.Duration
}

// update records how much is done. The estimate is the time that the rest takes at the speed until now.
func (p *progress) update(now time.Time, done, all int) {
	if p.done == p.all { // the work was complete, or begins
		p.since, p.from = now, done
	}
	p.done, p.all, p.left = done, all, 0
	if done > p.from {
		p.left = now.Sub(p.since) * time.Duration(all-done) / time.Duration(done-p.from)
	}
}

func (p *progress) percent() int {
	if p.all == 0 {
		return 100
	}
	return min(100*p.done/p.all, 100)
}

// String returns the progress for people.
func (p *progress) String() string {
	text := fmt.Sprintf("%d of %d", p.done, p.all)
	if p.left > 0 {
		text += ", about " + p.left.Round(time.Second).String() + " left"
	}
	return text
}

// notify tells systemd when the server has read its store and when it stops, and feeds its watchdog.
func notify(ctx context.Context, manager *relaysync.SyncManager) {
	every, err := daemon.SdWatchdogEnabled(false)
	if os.Getenv("NOTIFY_SOCKET") == "" || err != nil {
		return
	}
	if every == 0 {
		every = time.Hour
	}
	tick := time.NewTicker(min(every/2, time.Second))
	defer tick.Stop()
	for state := daemon.SdNotifyReady; ; {
		if !manager.Status().Unread {
			_, _ = daemon.SdNotify(false, state) // systemd reports what it misses
			state = daemon.SdNotifyWatchdog
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
			return
		}
	}
}

// short returns the cause of an error of the network.
func short(err error) error {
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
