package main

import (
	"context"
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
	Memory  bool   `help:"Keep events in memory, for tests of clients."`
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
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Address)
	if err != nil {
		return fmt.Errorf("-address: %w", err)
	}
	addr := listener.Addr().String()
	if err := listener.Close(); err != nil { // run listens again
		return err
	}
	opt := options{
		Listen: addr, AdminListen: addr, Domain: addr, Data: filepath.Join(dir, "data"), Name: "A server to try", SummaryEvery: time.Minute,
		AllowPlaintext: true, AllowNet: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}, memory: c.Memory, LogLevel: "warn",
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	log := newLogger(os.Stderr, opt)
	adopt(log)
	err = run(ctx, opt, log, func(net.Addr) {
		go func() {
			clone, secret, err := publishSample(ctx, addr, filepath.Join(dir, "sample"))
			if err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("publishing the sample: %w", err)
				cancel()
			} else if err == nil {
				fmt.Fprintf(out, sampleText, clone, addr, secret)
			}
		}()
	})
	select {
	case err = <-failed:
	default:
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

// publishSample publishes a repository, and returns its clone URL when it is served, and its secret
// key.
func publishSample(ctx context.Context, addr, dir string) (clone, nsec string, err error) {
	secret := nostr.GeneratePrivateKey()
	pubkey, _ := nostr.GetPublicKey(secret) // a generated key is valid
	npub, _ := nip19.EncodePublicKey(pubkey)
	nsec, _ = nip19.EncodePrivateKey(secret)
	clone = "http://" + addr + "/" + npub + "/sample.git"
	commit, err := exec.CommandContext(ctx, "sh", "-c", makeSample, "sh", dir).Output()
	if err != nil {
		return "", "", fmt.Errorf("git: %w", err)
	}
	relay, err := nostr.RelayConnect(ctx, "ws://"+addr, nostr.WithNoticeHandler(func(string) {}))
	if err != nil {
		return "", "", err
	}
	defer relay.Close()
	for _, event := range []nostr.Event{
		{Kind: 30617, Tags: nostr.Tags{{"d", "sample"}, {"description", "A sample repository"}, {"clone", clone}, {"relays", "ws://" + addr}}},
		{Kind: 30618, Tags: nostr.Tags{{"d", "sample"}, {"HEAD", "ref: refs/heads/main"}, {"refs/heads/main", strings.TrimSpace(string(commit))}}},
	} {
		event.CreatedAt = nostr.Now()
		if err = event.Sign(secret); err == nil {
			err = relay.Publish(ctx, event)
		}
		if err != nil {
			return "", "", err
		}
	}
	if out, err := exec.CommandContext(ctx, "git", "-C", dir, "push", "-q", clone, "main").CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("git push: %w: %s", err, out)
	}
	for ctx.Err() == nil {
		if found, err := relay.QuerySync(ctx, nostr.Filter{Kinds: []int{30617, 30618}}); err != nil || len(found) == 2 {
			return clone, nsec, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return "", "", ctx.Err()
}
