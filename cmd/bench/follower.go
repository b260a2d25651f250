package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// serviceHost is our host in the announcements of a world.
const serviceHost = "grasp.example"

// world is the content of a store before the start: repositories that list us and some relays, with
// issues. The events are not signed, because stored events are not verified.
type world struct {
	repos, issues int // issues per repository
	relays        int // relays of all repositories together
	listed        int // relays per repository
	url           func(relay int) string
}

const worldDate = 1_750_000_000

func (world) owner(repo int) string {
	key := sha256.Sum256(fmt.Appendf(nil, "owner %d", repo))
	return hex.EncodeToString(key[:])
}

func (world) name(repo int) string { return fmt.Sprintf("repository-%05d", repo) }

func (w world) address(repo int) string {
	return fmt.Sprintf("%d:%s:%s", graspsync.KindAnnouncement, w.owner(repo), w.name(repo))
}

func (w world) relaysOf(repo int) (relays []int) {
	for k := range w.listed {
		relays = append(relays, (repo*7+k)%w.relays)
	}
	return relays
}

func (w world) announcement(repo int) *nostr.Event {
	npub, err := nip19.EncodePublicKey(w.owner(repo))
	if err != nil {
		panic(err) // cannot happen with a hash
	}
	urls := nostr.Tag{"relays", "wss://" + serviceHost}
	for _, relay := range w.relaysOf(repo) {
		urls = append(urls, w.url(relay))
	}
	return w.event(graspsync.KindAnnouncement, w.owner(repo), repo, "",
		nostr.Tag{"d", w.name(repo)},
		nostr.Tag{"clone", "https://" + serviceHost + "/" + npub + "/" + w.name(repo) + ".git"}, urls)
}

func (w world) issue(repo, n int) *nostr.Event {
	return w.event(graspsync.KindIssue, w.owner(repo), repo*100+n, fmt.Sprint("issue ", n), nostr.Tag{"a", w.address(repo)})
}

func (world) event(kind int, author string, after int, content string, tags ...nostr.Tag) *nostr.Event {
	ev := &nostr.Event{PubKey: author, Kind: kind, CreatedAt: nostr.Timestamp(worldDate + after), Content: content, Tags: tags}
	ev.ID = ev.GetID()
	return ev
}

func save(ctx context.Context, store relaysync.Store, events func(yield func(*nostr.Event) bool)) error {
	var batch []graspsync.Incoming
	for raw := range events {
		ev, err := graspsync.ParseEvent(raw)
		if err != nil {
			return err
		}
		if batch = append(batch, graspsync.Incoming{Event: ev}); len(batch) == saveBatch {
			if err := saveAll(ctx, store, batch); err != nil {
				return err
			}
			batch = batch[:0]
		}
	}
	return saveAll(ctx, store, batch)
}

func (w world) events(yield func(*nostr.Event) bool) {
	for repo := range w.repos {
		if !yield(w.announcement(repo)) {
			return
		}
		for n := range w.issues {
			if !yield(w.issue(repo, n)) {
				return
			}
		}
	}
}

// start starts a crowd and saves the world in a store.
func (w *world) start(ctx context.Context) (c *crowdRemote, store *memstore.Store, identity nip34.Identity, err error) {
	if c, err = startCrowd(ctx); err != nil {
		return nil, nil, identity, err
	}
	w.url = c.url
	if store, identity, err = newMemstore(); err == nil {
		err = save(ctx, store, w.events)
	}
	if err != nil {
		err = errors.Join(err, c.close())
	}
	return c, store, identity, err
}

type follower struct {
	manager *relaysync.SyncManager
	stop    func() // stops the manager and waits
}

func newMemstore() (*memstore.Store, nip34.Identity, error) {
	identity, err := nip34.ParseIdentity(serviceHost)
	return memstore.New(memstore.WithIdentity(identity)), identity, err
}

// startFollower starts a manager with default settings, except for limits that a world exceeds.
func startFollower(ctx context.Context, store relaysync.Store, identity nip34.Identity, cfg relaysync.Config) (*follower, error) {
	dialer, err := egress.NewDialer(egress.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true,
	})
	if err != nil {
		return nil, err
	}
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer})
	if err != nil {
		return nil, err
	}
	cfg.AllowPlaintext = true
	m, err := relaysync.New(store, transport, identity, cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx) // its error is the end of the context
	}()
	return &follower{manager: m, stop: func() {
		cancel()
		<-ended
	}}, nil
}

// errNotSynced ends a row that waited too long.
var errNotSynced = errors.New("not in sync after a long time")

// synced waits until the given number of relays is connected and everything was fetched.
func (f *follower) synced(ctx context.Context, relays int, limit time.Duration) error {
	deadline := time.After(limit)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			s := f.manager.Status()
			live := 0
			for _, r := range s.Relays {
				if r.Phase == "live" {
					live++
				}
			}
			if live >= relays {
				return nil
			}
		case <-deadline:
			return errNotSynced
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// inUse returns the bytes of live objects and stacks of the process.
func inUse() uint64 {
	runtime.GC()
	runtime.GC() // frees objects that finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
