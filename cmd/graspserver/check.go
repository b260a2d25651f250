package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr/nip11"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

type checkCommand struct {
	Options options `embed:""`
}

func (checkCommand) Help() string {
	return "Start the server first, which checks its data folder and git itself. Each line begins with ok, warning or error. The exit code is 1 after an error. No push, no websocket and no -client-header is tested."
}

var errCheck = errors.New("errors were found")

type checker struct {
	out    io.Writer
	failed bool
}

func (c *checker) say(level, format string, args ...any) {
	c.failed = c.failed || level == "error"
	fmt.Fprintf(c.out, level+": "+format+"\n", args...)
}

func (c *checkCommand) Run(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	k, opt := &checker{out: out}, c.Options
	if opt.Domain == "" {
		opt.Domain = opt.Listen
		k.say("warning", "domain is not set, only this machine can use the server")
	}
	identity, err := identityOf(opt)
	if err != nil {
		return err
	}
	k.proxy(ctx, identity, opt)
	k.relays(ctx, opt.Bootstrap)
	if k.failed {
		return errCheck
	}
	return nil
}

func (c *checker) proxy(ctx context.Context, identity nip34.Identity, opt options) {
	at := identity.CloneBase()
	info, _, err := document(ctx, at)
	switch {
	case err != nil:
		c.say("error", "%s is not reachable: %v; start the server and the proxy", at, short(err))
	case info.Software != software:
		c.say("error", "%s answers as %q, not as graspserver; correct the proxy or -domain", at, graspsync.Printable(info.Software))
	case opt.Pubkey != (graspsync.PubKey{}) && info.PubKey != opt.Pubkey.String(), opt.Name != "" && info.Name != opt.Name:
		c.say("error", "%s answers as %q of %q, which is another server or has other settings", at, graspsync.Printable(info.Name), graspsync.Printable(info.PubKey))
	default:
		c.say("ok", "%s answers as %q, version %s", at, graspsync.Printable(info.Name), graspsync.Printable(info.Version))
	}
}

func (c *checker) relays(ctx context.Context, bootstrap []graspsync.RelayURL) {
	if len(bootstrap) == 0 {
		c.say("warning", "clock is not checked, because -bootstrap names no relay")
	}
	for _, relay := range bootstrap {
		at := relay.URL()
		at.Scheme = "http" + strings.TrimPrefix(at.Scheme, "ws")
		_, date, err := document(ctx, at.String())
		off := time.Since(date).Abs()
		switch {
		case err != nil && date.IsZero():
			c.say("warning", "relay %s is not reachable: %v", relay, short(err))
		case !date.IsZero() && off > time.Minute:
			c.say("error", "clock differs from the clock of %s by %s", relay, off.Round(time.Second))
		default:
			c.say("ok", "relay %s is reachable, clocks agree", relay)
		}
	}
}

func document(ctx context.Context, at string) (info nip11.RelayInformationDocument, date time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return info, date, err
	}
	req.Close = true
	req.Header.Set("Accept", "application/nostr+json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return info, date, err
	}
	defer resp.Body.Close()
	date, _ = http.ParseTime(resp.Header.Get("Date"))
	if resp.StatusCode != http.StatusOK {
		return info, date, fmt.Errorf("status %d", resp.StatusCode)
	}
	return info, date, json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&info)
}
