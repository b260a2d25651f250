package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
)

type operator struct {
	rules *rules.RuleSet
	kept  *state.DB // records of rules
	audit *admin.Log
	log   *slog.Logger
	path  string // of the rules file, or ""
}

// rulesDir is separate, because the other records may be deleted.
func rulesDir(opt options) string { return filepath.Join(opt.Data, "rules") }

func openOperator(ctx context.Context, opt options, log *slog.Logger) (_ *operator, err error) {
	o := &operator{log: log, path: opt.Rules}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	file, err := readRules(opt.Rules)
	if err != nil {
		return nil, err
	}
	if o.kept, err = state.Open(rulesDir(opt), state.Config{Logger: log}); err != nil {
		return nil, fmt.Errorf("opening the rules: %w", err)
	}
	if o.rules, err = rules.Open(ctx, o.kept, file); err != nil {
		return nil, err
	}
	o.audit, err = admin.OpenLog(filepath.Join(opt.Data, "audit.log"))
	return o, err
}

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

func (o *operator) record(e admin.Entry) {
	if err := o.audit.Record(e); err != nil {
		o.log.Error("command not written to the audit log", "command", e.Command, "error", err)
	}
}

const reloadFor = time.Minute

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
		err := server.Control().Reload(limited, "SIGHUP", func() (rules.File, error) { return readRules(o.path) })
		if err != nil && ctx.Err() == nil {
			o.log.Error("reload of the rules file failed", "error", err)
		}
		cancel()
	}
}

func administered(next http.Handler, server *grasp.Server, identity nip34.Identity, records state.Store, opt options, addr net.Addr, log *slog.Logger) (http.Handler, error) {
	if len(opt.Admin) == 0 {
		return next, nil
	}
	cfg := admin.Config{Owners: opt.Admin, Identity: identity, State: records, Client: clientOf(opt.ClientHeader, opt.TrustedProxy), Logger: log}
	if at, ok := addr.(*net.TCPAddr); ok && at.IP.IsLoopback() {
		cfg.URLs = []string{"http://" + at.String()} // nobody else gets there
	}
	handler, err := admin.New(server.Control(), cfg)
	if err != nil {
		return nil, fmt.Errorf("-admin: %w", err)
	}
	return handler.Middleware(next), nil
}

func identityOf(opt options) (nip34.Identity, error) {
	names := append([]string{cmp.Or(opt.Domain, opt.Listen)}, opt.AlsoDomain...)
	for i, name := range names {
		if _, err := nip34.ParseIdentity(name); err != nil {
			return nip34.Identity{}, fmt.Errorf("-%sdomain %q: want host[:port][/path], such as grasp.example.com", strings.Repeat("also-", min(i, 1)), name)
		}
	}
	return nip34.ParseIdentity(names...)
}
