package gitfetch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Fetcher fetches from git servers, and performs the git operations on bare repositories. [New]
// makes one. It is safe for concurrent use.
type Fetcher struct {
	// set by New, read-only
	version    string
	http       *http.Client
	git        *program
	disk       *storage
	checks     *checks
	maintained *limit.Slots // maintenance, one run at a time
	epoch      string       // part of the names of quarantines of this process
	cfg        Config
	faults     fsck.Rules
	client     *upload.Client
	received   *limit.Daily[string] // bytes per server address
	fetching   *limit.Slots         // fetches that wait for a server, by repository owner

	names atomic.Uint64 // quarantines made
}

var (
	_ purgatory.GitFetcher = (*Fetcher)(nil)
	_ gitops.Operations    = (*Fetcher)(nil)
	_ gitops.Quarantine    = (*Quarantine)(nil)
)

// New returns a Fetcher. The error wraps [ErrConfig] and names every invalid field, or wraps
// [ErrGit] if git is missing or too old.
func New(ctx context.Context, cfg Config) (*Fetcher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	faults, err := fsck.New(cfg.AllowFaults)
	if err != nil {
		return nil, fmt.Errorf("%w: AllowFaults: %w", ErrConfig, err)
	}
	version, build, err := checkVersion(ctx, cfg.Git, versionWithin)
	if err != nil {
		return nil, err
	}
	if weakHash(build) {
		cfg.Logger.Warn("git does not detect SHA-1 collisions", "version", version)
	}
	client := cfg.Dialer.HTTPClient(0)
	return &Fetcher{
		version: version, http: client, cfg: cfg, faults: faults,
		git: &program{
			Program:  &gitrun.Program{Path: cfg.Git, Settings: settings, Environment: environment, Memory: cfg.Memory},
			children: halves(cfg.MaxChildren),
		},
		disk:   &storage{files: osFiles{}, free: disk.Free, least: cfg.MinFreeDisk},
		checks: newChecks(), epoch: rand.Text(), received: limit.NewDaily[string](maxAddresses), fetching: halves(cfg.MaxFetches), maintained: limit.NewSlots(1, 1),
		client: &upload.Client{
			HTTP: client, UserAgent: userAgent, Answered: cfg.Dialer.MarkProven,
			Limits: upload.Limits{
				AdvertBytes: cfg.fixed.MaxAdvertBytes, AdvertRefs: cfg.fixed.MaxAdvertRefs,
				PackBytes: cfg.MaxPackBytes, PackObjects: cfg.MaxPackObjects,
			},
		},
	}, nil
}

// halves returns slots of which one owner may hold half.
func halves(total int) *limit.Slots { return limit.NewSlots(int64(total), int64(total+1)/2) }

// GitVersion returns the output of git version, such as "git version 2.39.5".
func (f *Fetcher) GitVersion() string { return f.version }

// Close closes idle connections.
func (f *Fetcher) Close() { f.http.CloseIdleConnections() }

// Collector returns a metric with the version of git.
func (f *Fetcher) Collector(namespace string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Subsystem: "git", Name: "info",
		Help:        "Always 1. The label is the version of git.",
		ConstLabels: prometheus.Labels{"version": graspsync.Printable(strings.TrimPrefix(f.version, "git version "))},
	}, func() float64 { return 1 })
}

// Stat implements [gitops.Operations]. It runs git only if the repository has changed.
func (f *Fetcher) Stat(ctx context.Context, dir string, ids []nip34.ObjectID) (map[nip34.ObjectID]refplan.Kind, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	now, err := f.stamp(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("looking up objects: %w", err)
	}
	known, kinds := f.checks.known(dir, now).kinds, make(map[nip34.ObjectID]refplan.Kind, len(ids))
	for _, id := range ids {
		kind, ok := known[id]
		if !ok {
			if kinds, err = f.kinds(ctx, dir, nil, ids); err == nil {
				f.checks.add(dir, now, ids, kinds, nil)
			}
			return kinds, err
		}
		if kind != 0 {
			kinds[id] = kind
		}
	}
	return kinds, nil
}

// Missing implements [gitops.Operations]. A present commit does not prove its history. It copies
// objects that neither refs nor keep files protect.
func (f *Fetcher) Missing(ctx context.Context, dir string, ids []nip34.ObjectID) (missing []nip34.ObjectID, err error) {
	now, err := f.stamp(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("looking up objects: %w", err)
	}
	if ids = without(ids, f.checks.known(dir, now).complete); len(ids) == 0 {
		return nil, nil
	}
	q, err := f.open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, q.Discard()) }()
	kept, err := marks(f.disk.files, dir)
	if err == nil {
		err = q.link(filepath.Join(dir, "objects", "pack"), kept)
	}
	if err != nil {
		return nil, fmt.Errorf("looking up objects: %w", err)
	}
	missing, made, err := q.find(ctx, ids)
	if err != nil {
		return nil, err
	}
	if made == "" {
		f.checks.add(dir, now, nil, nil, q.complete)
	} else if err := q.promotePack(made); err != nil {
		return nil, fmt.Errorf("keeping objects: %w", err)
	}
	return missing, q.Discard()
}

// Quarantine implements [gitops.Operations].
func (f *Fetcher) Quarantine(_ context.Context, dir string) (gitops.Quarantine, error) {
	return f.open(dir)
}

// Cleanup implements [gitops.Operations]. An operator may hold younger locks.
func (f *Fetcher) Cleanup(_ context.Context, dir string) error {
	err := barerepo.RemoveOldLocks(f.disk.files, dir, staleAfter, staleAfter)
	if err := errors.Join(err, f.sweep(dir), sweepObjects(f.disk.files, dir, time.Now()), unmark(f.disk.files, dir, time.Time{})); err != nil {
		return fmt.Errorf("cleaning up a repository: %w", err)
	}
	return nil
}

// Repair implements [gitops.Operations].
func (f *Fetcher) Repair(ctx context.Context, dir string) error {
	err := barerepo.RemoveLocks(ctx, f.disk.files, dir)
	if err := errors.Join(err, f.sweep(dir), sweepObjects(f.disk.files, dir, time.Now())); err != nil {
		return fmt.Errorf("mending a repository: %w", err)
	}
	return nil
}
