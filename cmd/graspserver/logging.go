package main

import (
	"cmp"
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

// readable replaces hex keys by npubs.
func readable(_ []string, a slog.Attr) slog.Attr {
	text := a.Value.String()
	if ref, err := graspsync.ParseRepoRef(text); err == nil {
		return slog.String(a.Key, nip34.NPub(ref.Owner)+"/"+ref.Identifier)
	}
	if key, err := graspsync.ParsePubKey(text); err == nil && a.Key != "event" {
		return slog.String(a.Key, nip34.NPub(key))
	}
	return a
}

// adopt writes lines of the standard logger, which libraries use, at level debug.
func adopt(log *slog.Logger) {
	standard.SetFlags(0)
	standard.SetOutput(slog.NewLogLogger(log.Handler(), slog.LevelDebug).Writer())
}

func banner(log *slog.Logger, identity nip34.Identity, addr net.Addr, opt options) {
	var admins []string
	for _, key := range opt.Admin {
		admins = append(admins, nip34.NPub(key))
	}
	facts := []any{
		"version", version(), "domain", bare(opt.Domain), "address", addr.String(), "data", opt.Data, "relay", identity.RelayURL(),
		"clone", identity.CloneBase() + "/<npub>/<identifier>.git", "admins", cmp.Or(strings.Join(admins, ", "), "nobody, set -admin"),
	}
	const started = "server started, it hosts repositories whose announcement lists relay and clone URL"
	if opt.LogFormat == "json" {
		log.Info(started, facts...)
		return
	}
	text := started
	for i := 0; i < len(facts); i += 2 {
		text += fmt.Sprintf("\n  %-8s %s", facts[i], facts[i+1])
	}
	log.Info(text)
}

const progressEvery = 10 * time.Second

// report logs the progress while the server catches up, and changed summaries.
func report(ctx context.Context, manager *relaysync.SyncManager, log *slog.Logger, every time.Duration) {
	tick := time.NewTicker(min(every, progressEvery))
	defer tick.Stop()
	summary, progress, summarized := "", "", time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s, now := manager.Status(), time.Now()
		all, missing, connected := s.Git.All(), s.Git.Missing, false
		for _, r := range s.Relays {
			if r.Connected() {
				all, missing, connected = all+r.Wanted, missing+r.Missing(), true
			}
		}
		_, words := explain.Headline(s)
		if missing > 0 && connected {
			percent := 100 * (all - missing) / all
			if text := fmt.Sprint(percent, words); text != progress {
				progress = text
				log.Info("catching up", "percent", percent, "state", words)
			}
		}
		facts := []any{"state", words, "repositories", s.Git.All(), "relays", len(s.Relays), "stored", s.Events.Stored}
		if text := fmt.Sprint(facts...); now.Sub(summarized) >= every && text != summary {
			summary, summarized = text, now
			log.Info("summary", facts...)
		}
	}
}

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

func short(err error) error {
	var name *net.DNSError
	if errors.As(err, &name) {
		return errors.New(name.Err)
	}
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}
