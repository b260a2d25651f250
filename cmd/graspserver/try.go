package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"
)

type tryCommand struct {
	Address string `default:"127.0.0.1:0" help:"Address to listen on, port 0 for a free port."`
}

func (tryCommand) Help() string {
	return "The server has a temporary folder, which is deleted at the end. It connects to other relays and git servers on this machine only."
}

func (c *tryCommand) Run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "graspserver-try-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	opt := options{
		Listen: c.Address, AdminListen: c.Address, Data: filepath.Join(dir, "data"), Name: "A server to try", SummaryEvery: time.Minute,
		AllowPlaintext: true, AllowNet: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, LogLevel: "error",
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	log := newLogger(os.Stderr, opt)
	adopt(log)
	err = run(ctx, opt, log, func(addr net.Addr) {
		go func() {
			if err := publishSample(ctx, addr.String(), filepath.Join(dir, "sample"), out); err != nil {
				cancel(fmt.Errorf("publishing the sample: %w", err))
			}
		}()
	})
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

const sampleText = `clone    git clone %s
relay    ws://%s
page     http://%[2]s/
status   http://%[2]s/status/
owner    %s
Ctrl-C ends the server and deletes its data.
`

const makeSample = `set -e
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=graspserver GIT_AUTHOR_EMAIL=try@localhost
export GIT_COMMITTER_NAME=graspserver GIT_COMMITTER_EMAIL=try@localhost
git init -q -b main "$1"
cd "$1"
printf '# Sample\n\nThis repository was made by "graspserver try".\n' > README.md
git add README.md
git commit -q -m 'Add a README'
git rev-parse main`

// publishSample publishes a repository, and prints its clone URL and secret key when it is served.
func publishSample(ctx context.Context, addr, dir string, out io.Writer) error {
	secret := nostr.GeneratePrivateKey()
	pubkey, _ := nostr.GetPublicKey(secret) // a generated key is valid
	npub, _ := nip19.EncodePublicKey(pubkey)
	nsec, _ := nip19.EncodePrivateKey(secret)
	clone := "http://" + addr + "/" + npub + "/sample.git"
	commit, err := exec.CommandContext(ctx, "sh", "-c", makeSample, "sh", dir).Output()
	if err != nil {
		return fmt.Errorf("git: %w", err)
	}
	relay, err := nostr.RelayConnect(ctx, "ws://"+addr, nostr.WithNoticeHandler(func(string) {}))
	if err != nil {
		return err
	}
	defer relay.Close()
	for _, event := range []nostr.Event{
		{Kind: 30617, Tags: nostr.Tags{{"d", "sample"}, {"description", "A sample repository"}, {"clone", clone}, {"relays", "ws://" + addr}}},
		{Kind: 30618, Tags: nostr.Tags{{"d", "sample"}, {"HEAD", "ref: refs/heads/main"}, {"refs/heads/main", strings.TrimSpace(string(commit))}}},
	} {
		event.CreatedAt = nostr.Now()
		if err := errors.Join(event.Sign(secret), relay.Publish(ctx, event)); err != nil {
			return err
		}
	}
	if said, err := exec.CommandContext(ctx, "git", "-C", dir, "push", "-q", clone, "main").CombinedOutput(); err != nil {
		return fmt.Errorf("git push: %w: %s", err, said)
	}
	for found := 0; found < 2; time.Sleep(50 * time.Millisecond) { // after the push, the events are stored
		events, err := relay.QuerySync(ctx, nostr.Filter{Kinds: []int{30617, 30618}})
		if found = len(events); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(out, sampleText, clone, addr, nsec)
	return err
}
