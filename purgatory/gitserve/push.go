package gitserve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

type push struct {
	ref graspsync.RepoRef
	dir string // folder of the repository
	*transfer
	body   *body
	req    *request
	folder string   // receives the files that git writes, below the root
	pack   string   // received pack, as a path prefix below the root; "": none
	tries  int      // calls of each
	alive  func()   // sends a progress packet
	notes  []string // messages for the client
}

// take processes a push. Git indexes the pack in a separate folder, without the lock. Then the
// objects that allowed refs need are packed into the repository, and the push is staged for events
// that are not stored. An error is the reason for all commands without a reason. Only if syncing
// failed, their refs have moved.
func (h *Handler) take(ctx context.Context, p *push) error {
	if err := judge(ctx, h.auth, p.ref, p.req); err != nil || p.req.over() {
		return err
	}
	p.body.sent.end, _ = ctx.Deadline()
	p.folder = h.repos.fresh()
	defer func() {
		if err := h.repos.root.RemoveAll(p.folder); err != nil {
			h.log.failed(p.ref, err)
		}
	}()
	for _, d := range []string{"", "pack"} {
		if err := h.repos.root.Mkdir(path.Join(p.folder, d), 0o700); err != nil {
			return fmt.Errorf("creating the folder of a push: %w", err)
		}
	}
	offset := p.body.size
	if err := h.receive(ctx, p); err != nil {
		return err
	}
	defer p.keepAlive()()
	if err := judge(ctx, h.auth, p.ref, p.req); err != nil || p.req.over() {
		return err
	}
	if err := h.index(ctx, p, offset); err != nil || p.req.over() {
		return err
	}
	told := false
	if len(p.req.left(false)) > 0 {
		var err error
		if told, err = h.change(ctx, p); err != nil || p.req.over() {
			return err
		}
	}
	if err := h.keep(p); err != nil { // the other commands are applied
		_, problem := h.problem(p.ref, err)
		for _, c := range p.req.left(true) {
			c.reason = problem
		}
	}
	if told {
		p.body.close() // frees the disk space while the client waits
		h.settled(ctx, p)
	}
	return nil
}

func (h *Handler) receive(ctx context.Context, p *push) error {
	p.body.room = func() error {
		slot, err := h.kept.acquire(ctx, p.who, roomEvery)
		if err != nil {
			return err
		}
		p.body.held = append(p.body.held, p.hold(slot))
		return h.room(0)
	}
	err := h.room(0)
	if err == nil {
		err = p.body.readAll()
	}
	if err == nil {
		err = h.room(p.body.size) // git writes a second copy
	}
	return err
}

func (h *Handler) index(ctx context.Context, p *push, offset int64) error {
	sets := slices.ContainsFunc(p.req.commands, func(c *command) bool { return !c.new.IsZero() })
	head := make([]byte, packHead)
	if n, err := p.body.file.ReadAt(head, offset); !sets && n == 0 {
		return nil
	} else if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("saving a request: %w", err)
	} else if n < packHead || string(head[:4]) != "PACK" {
		return fmt.Errorf("%w: there is no pack", errRequest)
	}
	if binary.BigEndian.Uint32(head[8:]) == 0 { // objects
		return nil
	}
	process, err := h.pushes.processes.acquire(ctx, p.who, 1)
	if err != nil {
		return err
	}
	defer process.Release()
	return h.indexPack(ctx, p, offset)
}

func (h *Handler) indexPack(ctx context.Context, p *push, offset int64) error {
	hash, err := h.repos.faults.Index(p.body.file, offset, h.cfg.MaxPush, p.objects(), func(c gitrun.Child) error {
		if c.Args[0] == fsck.Command {
			c.Limits.File = 2 * h.cfg.MaxPush // --max-input-size does not count bases of a thin pack
			if len(p.req.left(true)) == 0 {   // nothing of this folder is kept
				c.Settings = []string{"-c", "core.fsync=none"}
			}
		}
		return h.aside(ctx, p, c)
	})
	p.pack = path.Join(p.folder, "pack", "pack-"+hash)
	var fault *fsck.Fault
	switch {
	case errors.As(err, &fault):
		return &refusal{status: http.StatusForbidden, text: fault.Error()}
	case p.req.shallow && isFault(err) && strings.Contains(err.Error(), "did not receive expected object"):
		return &refusal{status: http.StatusForbidden, text: "shallow update not allowed: history is missing that is not here either; git fetch --unshallow gets it"}
	}
	return err
}

const packHead = 12

func isFault(err error) bool { return isRefusal(err, http.StatusForbidden) }

// change moves the refs of a push under the lock, after judging it again. told reports whether the
// Authority was notified.
func (h *Handler) change(ctx context.Context, p *push) (told bool, err error) {
	_ = p.setQueued(true) // turn returns an error if the transfer must end
	done, err := h.turn(ctx, p.who, p.ref)
	left := p.setQueued(false) // last point at which the transfer can still end
	if err != nil {
		return false, err
	}
	defer done()
	if left != nil {
		return false, left
	}
	if err := judge(ctx, h.auth, p.ref, p.req); err != nil {
		return false, err
	}
	at := filepath.FromSlash(h.repos.at(p.ref))
	now, err := barerepo.AllRefs(h.repos.root, at)
	if err != nil {
		return false, fmt.Errorf("reading refs: %w", err)
	}
	for _, c := range p.req.left(false) {
		if now[c.ref.String()] != c.new && now[c.ref.String()] != c.old {
			c.reason = refusedStale
		}
	}
	pack, err := h.choose(ctx, p, now)
	moves := p.moves(now)
	if err != nil {
		return false, err
	}
	changed := names(p.req.left(false))
	// Git does not sync folders.
	settle := func() error { return barerepo.SyncRefs(at, changed, h.repos.sync) }
	if len(moves) == 0 { // an earlier push that moved the refs may have failed later
		return false, settle()
	}
	if err := barerepo.LogRemoved(h.repos.root, at, changes(moves, now), time.Now()); err != nil {
		return false, fmt.Errorf("logging deleted refs: %w", err)
	}
	h.auth.Pushing(p.ref, changed)
	err = errors.Join(h.move(ctx, p, pack, moves, now), settle())
	done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if aerr := h.auth.AfterPush(ctx, p.ref, changed); aerr != nil { // even after an error, because git may have moved refs
		h.cfg.Logger.Error("reporting a push failed", "repo", graspsync.Printable(p.ref.String()), "error", aerr)
	}
	return true, err
}

func (p *push) moves(now map[string]nip34.ObjectID) []*command {
	if p.req.over() {
		return nil
	}
	return slices.DeleteFunc(p.req.left(false), func(c *command) bool { return now[c.ref.String()] == c.new })
}

// choose returns the pack of the objects that the commands need, without commands whose objects are
// missing or that the Authority does not admit. It refuses all if there is no room.
func (h *Handler) choose(ctx context.Context, p *push, now map[string]nip34.ObjectID) (pack string, err error) {
	for again := true; again; {
		some := p.moves(now)
		if len(some) == 0 {
			return "", nil
		}
		if pack, err = h.pack(ctx, p, some, now); isFault(err) {
			if err = p.each(some, func(some []*command) error {
				_, err := h.pack(ctx, p, some, now)
				return err
			}); err != nil {
				return "", err
			}
			continue
		}
		var bytes int64
		if err == nil {
			bytes, err = h.repos.weigh(pack)
		}
		if err == nil {
			pulls := !slices.ContainsFunc(some, func(c *command) bool { _, ok := refplan.EventOf(c.ref); return !ok })
			err = h.repos.quota.reserve(ctx, p.ref, pulls, bytes)
		}
		if err == nil {
			again, err = ration(ctx, h.auth, p.ref, p.dir, some, now, max(1, bytes))
		}
		if err != nil {
			return "", err
		}
	}
	return pack, nil
}

// maxTries is the maximum number of calls by each. The remaining commands are then refused.
const maxTries = 100

// each calls do for commands, and after a fault for each half, so that only faulty commands are
// refused, or all of an atomic push.
func (p *push) each(some []*command, do func([]*command) error) error {
	err := do(some)
	if !isFault(err) {
		return err
	}
	if p.tries++; len(some) == 1 || p.req.atomic || p.tries > maxTries {
		for _, c := range some {
			c.reason = err.Error()
		}
		return nil
	}
	half := len(some) / 2
	if err := p.each(some[:half], do); err != nil {
		return err
	}
	return p.each(some[half:], do)
}

// pack makes a pack of the objects that commands need and no ref in now reaches. It returns its path
// prefix below the root, or "" without such objects.
func (h *Handler) pack(ctx context.Context, p *push, some []*command, now map[string]nip34.ObjectID) (string, error) {
	var in bytes.Buffer
	for _, c := range some {
		if !c.new.IsZero() {
			fmt.Fprintln(&in, c.new)
		}
	}
	if in.Len() == 0 {
		return "", nil
	}
	for _, id := range now {
		fmt.Fprintf(&in, "^%s\n", id)
	}
	var name bytes.Buffer
	to := path.Join(p.folder, "needed")
	err := h.aside(ctx, p, gitrun.Child{
		Env: gitrun.Beside(p.objects()), Stdin: &in, Stdout: &name, Limits: gitrun.Limits{File: h.cfg.MaxPush}, // deltas against stored objects are written in full
		Args: []string{
			"pack-objects", "--revs", "--non-empty", "--quiet", "--delta-base-offset", "--window=0", "--threads=1",
			filepath.Join(h.repos.dir, filepath.FromSlash(to)),
		},
	})
	switch {
	case isFault(err):
		return "", &refusal{status: http.StatusForbidden, text: refusedMissing}
	case err != nil || name.Len() == 0:
		return "", err
	}
	return to + "-" + strings.TrimSpace(name.String()), nil
}

// move imports a pack and moves refs, even if the client disconnects. If no ref moved, it removes
// the pack.
func (h *Handler) move(ctx context.Context, p *push, pack string, moves []*command, now map[string]nip34.ObjectID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.fixed.Timeout)
	defer cancel()
	defer context.AfterFunc(h.tasks.ctx, func() { time.AfterFunc(finishTime, cancel) })()
	memory, err := h.takeMemory(ctx, p.who, gitrun.AskMemory)
	if err != nil {
		return err
	}
	defer memory.Release()
	at := h.repos.at(p.ref)
	end, err := h.repos.promote(pack, at)
	update := func(some []*command) error {
		return h.within(ctx, gitrun.Child{
			Dir: p.dir, Env: committer, Stdin: barerepo.Transaction(changes(some, now)), Limits: gitrun.Limits{Memory: gitrun.AskMemory},
			Args: []string{"update-ref", "--no-deref", "--stdin", "-z", "-m", "push"},
		})
	}
	if err == nil {
		err = p.each(moves, func(some []*command) error {
			err := update(some)
			if err != nil { // because of the locks of a killed git?
				if lerr := barerepo.RemoveLocks(ctx, h.repos.root, filepath.FromSlash(at)); lerr != nil {
					return errors.Join(err, lerr)
				}
				err = update(some)
			}
			return err
		})
	}
	moved := slices.ContainsFunc(moves, func(c *command) bool { return c.reason == "" })
	switch eerr := end(moved); {
	case moved && eerr != nil: // Cleanup removes the keep file
		h.log.failed(p.ref, eerr)
	case eerr != nil:
		err = errors.Join(err, eerr)
	}
	return err
}

// finishTime is the time that git has to move refs during shutdown. Killed git would leave some
// unmoved.
const finishTime = 5 * time.Second

var committer = []string{"GIT_COMMITTER_NAME=anonymous", "GIT_COMMITTER_EMAIL=anonymous@http.0.0.0.0"}

// objects returns the folder relative to the repository.
func (p *push) objects() string { return path.Join("../..", p.folder) }

func (h *Handler) aside(ctx context.Context, p *push, c gitrun.Child) error {
	all, each := pushMemory(h.git.Memory, p.dir, p.body.size)
	memory, err := h.takeMemory(ctx, p.who, all)
	if err != nil {
		return err
	}
	defer memory.Release()
	c.Dir, c.Limits.Memory = p.dir, each
	ctx, stop := h.watch(ctx, p)
	defer stop()
	return h.within(ctx, c)
}

// within runs git. The error is a refusal if the pushed data or a limit is its reason.
func (h *Handler) within(ctx context.Context, c gitrun.Child) error {
	c.Limits.CPU, c.Lock, c.Nice = h.cfg.fixed.Timeout, h.repos.lock, true
	err := h.git.Run(ctx, c)
	var failed *gitrun.Error
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.As(err, &failed):
	case failed.FileTooLarge():
		return limitError("git %s wrote more than %d bytes", c.Args[0], c.Limits.File)
	case failed.Code() != gitrun.Died:
	case gitrun.OutOfMemory(failed.Stderr):
		return limitError("git %s needs more than the %d bytes of memory that it may have", c.Args[0], c.Limits.Memory)
	case !strings.Contains(failed.Stderr, "No space left on device"): // a full disk is not the client's fault
		return &refusal{status: http.StatusForbidden, text: "git " + c.Args[0] + ": " + strings.ReplaceAll(reasons(failed), h.repos.dir, ""), cause: err}
	}
	return err
}

// While other pushes wait, git may take shareMost plus shareEach per MiB of the push.
const (
	shareMost = 20 * time.Second
	shareEach = time.Second
)

func (h *Handler) watch(ctx context.Context, p *push) (_ context.Context, stop func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.fixed.Timeout, limitError("git took more than %v", h.cfg.fixed.Timeout))
	ctx, end := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(roomPeriod)
		defer tick.Stop()
		began, share := time.Now(), shareMost+time.Duration(p.body.size>>20)*shareEach
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := h.room(0); err != nil {
				end(err)
			} else if _, waiting := h.pushes.processes.Stats(); waiting > 0 && time.Since(began) > share {
				end(fmt.Errorf("%w: git took more than %v, and others wait", errBusy, share))
			}
		}
	})
	return ctx, func() {
		end(nil)
		cancel()
		wg.Wait()
	}
}

const roomPeriod = time.Second

func (h *Handler) room(more int64) error {
	free, err := h.free(h.repos.dir)
	if err != nil {
		return fmt.Errorf("checking the disk: %w", err)
	}
	if least := h.cfg.MinFreeDisk; free < least || free-least < uint64(more) {
		return fmt.Errorf("%w: %d bytes are free", errDisk, free)
	}
	return nil
}

func (h *Handler) keep(p *push) error {
	tips := make(map[graspsync.EventID]string)
	for _, c := range p.req.left(true) {
		id, _ := refplan.EventOf(c.ref) // left(true) returns only refs of events
		tips[id] = c.new.String()
	}
	if len(tips) == 0 {
		return nil
	}
	ids := slices.Collect(maps.Keys(tips))
	bytes, err := h.repos.weigh(p.pack)
	if err == nil {
		err = h.repos.staging.keep(p.folder, &upload{Repo: p.ref, Client: p.who.ID, Bytes: bytes, Tips: tips})
	}
	if err != nil {
		return err
	}
	p.notes = append(p.notes, fmt.Sprintf("stored for %v, until the event arrives", h.repos.staging.cfg.StageHold))
	h.auth.Staged(p.ref, ids)
	return nil
}

func changes(commands []*command, now map[string]nip34.ObjectID) []refplan.RefChange {
	out := make([]refplan.RefChange, len(commands))
	for i, c := range commands {
		out[i] = refplan.RefChange{Name: c.ref, Old: now[c.ref.String()], New: c.new}
	}
	return out
}

// packFiles are the extensions of the files of a pack. The index is moved last, because git finds
// packs by it.
var packFiles = []string{".pack", ".idx"}

func (r *Repositories) weigh(pack string) (n int64, err error) {
	if pack == "" {
		return 0, nil
	}
	for _, ext := range packFiles {
		info, err := r.root.Stat(pack + ext)
		if err != nil {
			return 0, fmt.Errorf("measuring a push: %w", err)
		}
		n += info.Size()
	}
	return n, nil
}

// promote moves a synced pack into a repository, durably. Until end is called, its keep file protects
// it from garbage collection that has read the refs before they move. end deletes the pack if no ref
// has moved.
func (r *Repositories) promote(pack, at string) (end func(moved bool) error, err error) {
	to := path.Join(at, "objects/pack", barerepo.NewPackName())
	if pack == "" {
		return func(bool) error { return nil }, nil
	}
	end = func(moved bool) (err error) {
		for _, ext := range slices.Backward(packFiles) {
			if !moved {
				err = errors.Join(err, ifExists(r.root.Remove(to+ext)))
			}
		}
		return errors.Join(err, ifExists(r.root.Remove(to+".keep")))
	}
	if err := r.write(to+".keep", barerepo.KeepNote); err != nil {
		return end, fmt.Errorf("importing a pack: %w", err)
	}
	for _, ext := range packFiles {
		if err := r.root.Rename(pack+ext, to+ext); err != nil {
			return end, fmt.Errorf("importing a pack: %w", err)
		}
	}
	return end, r.sync(path.Dir(to))
}
