package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
)

// operator is what whoever runs the server has decided, and the log of what they commanded.
type operator struct {
	book  *rules.Book
	kept  *state.DB // the book's
	audit *admin.Log
	log   *slog.Logger
	path  string // of the file of rules, "" for none
}

// rulesDir is where the rules are: in records of their own, since the others may be lost.
func rulesDir(opt options) string { return filepath.Join(opt.data, "rules") }

// openOperator opens what was decided. It was among the records of the server once, and is taken over.
func openOperator(ctx context.Context, records state.Store, opt options, log *slog.Logger) (_ *operator, err error) {
	o := &operator{log: log, path: opt.rules}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	file, err := readRules(opt.rules)
	if err != nil {
		return nil, err
	}
	if o.kept, err = state.Open(rulesDir(opt), state.Config{Logger: log}); err != nil {
		return nil, fmt.Errorf("opening the rules: %w", err)
	}
	moved, err := rules.Move(ctx, records, o.kept)
	if err != nil {
		return nil, err
	}
	if moved > 0 {
		log.Info("rules moved to their own folder, include it in backups", "folder", rulesDir(opt), "records", moved)
	}
	if o.book, err = rules.Open(ctx, o.kept, rules.Config{File: file}); err != nil {
		return nil, err
	}
	if o.audit, err = admin.OpenLog(filepath.Join(opt.data, "audit.log")); err != nil {
		return nil, err
	}
	return o, o.remember(opt.bootstrap)
}

// close closes what was opened.
func (o *operator) close() error {
	var errs []error
	if o.audit != nil {
		errs = append(errs, o.audit.Close())
	}
	if o.kept != nil {
		errs = append(errs, o.kept.Close())
	}
	return errors.Join(errs...)
}

// readRules reads a file of rules; "" is none.
func readRules(path string) (rules.File, error) {
	if path == "" {
		return rules.File{}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return rules.File{}, fmt.Errorf("-rules: %w", err)
	}
	defer f.Close()
	file, err := rules.ParseFile(f)
	if err != nil {
		return rules.File{}, fmt.Errorf("-rules %s: %w", path, err)
	}
	return file, nil
}

// record keeps a command. That it could not be kept undoes nothing, and is said.
func (o *operator) record(e admin.Entry) {
	if err := o.audit.Record(e); err != nil {
		o.log.Error("command not written to the audit log", "command", e.Command, "error", err)
	}
}

// reloadFor bounds acting on what has changed in a file.
const reloadFor = time.Minute

// reloads reads the file of rules again whenever it is asked to, until ctx ends. A file that can't be
// read changes nothing.
func (o *operator) reloads(ctx context.Context, server *grasp.Server, asked <-chan os.Signal) {
	for {
		select {
		case <-asked:
		case <-ctx.Done():
			return
		}
		if o.path == "" {
			o.log.Warn("reload ignored, -rules names no file")
			continue
		}
		limited, cancel := context.WithTimeout(ctx, reloadFor)
		err := server.Control("SIGHUP").Reload(limited, func() (rules.File, error) { return readRules(o.path) })
		if err != nil && ctx.Err() == nil {
			o.log.Error("reload of the rules file failed", "error", err)
		}
		cancel()
	}
}

// administered has owners command a server over HTTP, if there are any.
func administered(next http.Handler, server *grasp.Server, identity nip34.Identity, records state.Store, opt options, addr net.Addr, log *slog.Logger) (http.Handler, error) {
	if len(opt.admins) == 0 {
		return next, nil
	}
	cfg := admin.Config{Owners: opt.admins, Identity: identity, State: records, Client: clientOf(opt.clientHeader, opt.proxies), Logger: log}
	if at, err := netip.ParseAddrPort(addr.String()); err == nil && at.Addr().IsLoopback() {
		cfg.URLs = []string{"http://" + at.String()} // nobody else gets there
	}
	handler, err := admin.New(server.Control(""), cfg)
	if err != nil {
		return nil, fmt.Errorf("-admin: %w", err)
	}
	return handler.Before(next), nil
}

// identityOf is under which addresses others reach the server.
func identityOf(opt options) (nip34.Identity, error) {
	identity, err := nip34.ParseIdentity(append([]string{opt.domain}, opt.also...)...)
	if err != nil {
		return identity, fmt.Errorf("-domain: %w", err)
	}
	return identity, nil
}

var errKey = errors.New("want a public key as npub1... or 64 hex digits")

// owners reads keys, as npub or hex.
func owners(to *[]graspsync.PubKey) func(string) error {
	return list(to, func(s string) (graspsync.PubKey, error) {
		k, err := rules.ParseAuthor(s)
		if err != nil {
			return k, errKey
		}
		return k, nil
	})
}

// named is what is said of a relay that says nothing.
func named(s string) string { return cmp.Or(s, "-") }
