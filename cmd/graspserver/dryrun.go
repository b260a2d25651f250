package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	eventbadger "github.com/fiatjaf/eventstore/badger"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/wstransport"
)

// databaseOf makes the data folder. A dry run of a server that has stored nothing yet makes none, but
// one for its database that remove takes away.
func databaseOf(opt options) (at options, remove func(), err error) {
	if opt.dryRun && !exists(filepath.Join(opt.data, "events")) {
		opt.data, err = os.MkdirTemp("", "graspserver-dry-run-")
		return opt, func() { _ = os.RemoveAll(opt.data) }, err
	}
	return opt, func() {}, os.MkdirAll(opt.data, 0o700)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// triesOnce syncs into memory: nothing is stored, no git data is fetched, and nothing is remembered of
// relays.
func triesOnce(ctx context.Context, db *eventbadger.BadgerBackend, opt options, log *slog.Logger) (*oneShot, error) {
	identity, err := identityOf(opt)
	if err != nil {
		return nil, err
	}
	base, err := eventstoreadapter.New(db, eventstoreadapter.Config{Identity: identity})
	if err != nil {
		return nil, err
	}
	book, err := decided(ctx, opt, log)
	if err != nil {
		return nil, err
	}
	dialer, err := egress.NewDialer(egress.Config{
		Allow: opt.allowNet, OwnNames: identity.HostPorts(), AllowPlaintext: opt.allowPlaintext, Deny: book.Deny,
	})
	if err != nil {
		return nil, err
	}
	transport, err := wstransport.New(wstransport.Config{Dialer: dialer, Logger: log})
	if err != nil {
		return nil, err
	}
	store := &dryStore{base: base, over: memstore.New(memstore.WithIdentity(identity))}
	policy := relaysync.NewGRASPPolicy(identity)
	policy.Membership, policy.GRASPLists = nip34.Membership{OneSided: opt.oneSided}, opt.graspLists
	manager, err := relaysync.New(store, transport, identity, relaysync.Config{
		Bootstrap: book.Bootstrap(opt.bootstrap), AllowPlaintext: opt.allowPlaintext, Policy: policy, Rules: book, Logger: log,
		Times: relaysync.Times{BatchWindow: opt.batchWindow}, Health: health.Config{BaseBackoff: opt.baseBackoff},
	})
	if err != nil {
		return nil, err
	}
	return &oneShot{
		run: manager.Run, status: statusNow(manager), waits: func() purgatory.Status { return purgatory.Status{} }, ready: manager.Ready(), stored: store.over.Len,
		close: func() { _ = base.Close() },
	}, nil
}

// decided is what is blocked. Nothing is written to it.
func decided(ctx context.Context, opt options, log *slog.Logger) (*rules.Book, error) {
	file, err := readRules(opt.rules)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{rulesDir(opt), filepath.Join(opt.data, "state")} { // they were in the other one once
		book, err := readBook(ctx, dir, file, log)
		if book != nil || err != nil {
			return book, err
		}
	}
	return rules.Open(ctx, state.NewMemory(), rules.Config{File: file})
}

// readBook reads the rules in a folder of records, nil if there are none.
func readBook(ctx context.Context, dir string, file rules.File, log *slog.Logger) (book *rules.Book, err error) {
	if !exists(dir) {
		return nil, nil //nolint:nilnil // no rules, no error
	}
	records, err := state.Open(dir, state.Config{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("opening the rules: %w", err)
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	for _, err := range records.Each(ctx, "rules/") {
		if err != nil {
			return nil, fmt.Errorf("reading the rules: %w", err)
		}
		return rules.Open(ctx, records, rules.Config{File: file})
	}
	return nil, nil //nolint:nilnil // no rules, no error
}
