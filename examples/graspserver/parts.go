package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	eventbadger "github.com/fiatjaf/eventstore/badger"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"

	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

// parts are what makes a relay a server that keeps itself in sync.
type parts struct {
	sync      *khatruadapter.Sync
	purgatory *purgatory.Purgatory
	git       *gitserve.Handler
	fetcher   *gitfetch.Fetcher
	repos     *gitserve.Repositories
}

// newParts adds them to a relay. What was being done when the process was killed is
// put in order before it returns.
func newParts(ctx context.Context, relay *khatru.Relay, db *eventbadger.BadgerBackend, kept state.Store, opt options, addr net.Addr, log *slog.Logger) (_ *parts, err error) {
	identity, err := nip34.ParseIdentity(opt.domain)
	if err != nil {
		return nil, fmt.Errorf("-domain: %w", err)
	}
	own, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return nil, fmt.Errorf("own address: %w", err)
	}
	// One for websockets and git: what a stranger's address may be burdened with.
	budget, err := egress.NewBudget(egress.BudgetConfig{})
	if err != nil {
		return nil, err
	}
	rules := egress.Config{
		Allow: opt.allowNet, Own: []netip.AddrPort{own}, OwnNames: identity.Authorities(),
		AllowPlaintext: opt.allowPlaintext, Budget: budget,
	}
	p := &parts{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	policy := purgatoryadapter.NewPolicy(relaysync.NewGRASPPolicy(identity))
	if p.sync, err = khatruadapter.New(relay, db, identity, khatruadapter.Config{
		GateDirect: true,
		Egress:     rules,
		Sync: relaysync.Config{
			Policy:         policy,
			Bootstrap:      opt.bootstrap,
			AllowPlaintext: opt.allowPlaintext,
			BatchWindow:    opt.batchWindow,
			Health:         health.Config{BaseBackoff: opt.baseBackoff, RestartPause: opt.restartPause},
			State:          kept,
			Logger:         log,
		},
	}); err != nil {
		return nil, err
	}
	if p.repos, err = gitserve.Open(filepath.Join(opt.data, "git")); err != nil {
		return nil, err
	}
	dialer, err := egress.NewDialer(rules)
	if err != nil {
		return nil, err
	}
	if p.fetcher, err = gitfetch.New(ctx, gitfetch.Config{Dialer: dialer, Logger: log}); err != nil {
		return nil, err
	}
	host := purgatoryadapter.Host{Store: p.sync.Store(), Release: p.sync.Release, Removed: p.sync.Removed, Lists: policy.Lists}
	if p.purgatory, err = purgatory.Open(ctx, host.Relay(), p.repos, p.fetcher, kept, purgatory.Config{
		Identity: identity, Logger: log, Observe: host.Observe,
		Hold: opt.expiry, MaxHold: max(opt.expiry, 24*time.Hour),
		SyncDelay: opt.syncDelay, UserDelay: opt.userDelay,
		Backoff: opt.huntBackoff, MaxBackoff: max(opt.huntBackoff, 2*time.Minute),
		DomainLimit: opt.perDomain, DomainLimits: opt.domainLimits,
	}); err != nil {
		return nil, err
	}
	policy.Join(p.purgatory)
	relay.OnEventSaved = append(relay.OnEventSaved, func(_ context.Context, e *nostr.Event) { p.purgatory.Arrived(e) })
	authority := purgatoryadapter.Authority{Store: p.sync.Store(), Purgatory: p.purgatory}
	p.git, err = gitserve.New(p.repos, authority, gitserve.Config{Logger: log})
	return p, err
}

// run works until ctx ends.
func (p *parts) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.purgatory.Run(ctx) }) // it returns why ctx ended, as the next one
	wg.Go(func() { _ = p.sync.Run(ctx) })
	wg.Wait()
}

// close ends what is left.
func (p *parts) close() error {
	var err error
	if p.git != nil {
		p.git.Close()
	}
	if p.fetcher != nil {
		p.fetcher.Close()
	}
	if p.repos != nil {
		err = p.repos.Close()
	}
	return err
}
