package gitserve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

type push struct {
	ref graspsync.RepoRef
	dir string // folder of the repository
	*transfer
	body    *body
	req     *request
	folder  *upload  // receives the files that git writes
	objects int      // number of objects in the received pack
	tries   int      // calls of each
	alive   func()   // sends a progress packet
	notes   []string // messages for the client
}

// take processes a push. It indexes the pack in a separate folder, without the lock of the
// repository. Only the objects that allowed refs need move into the repository. Objects for events
// that are not stored move to the staging area. Afterwards every refused command has a reason. An
// error is the reason for all other commands, and none of them was applied.
func (h *Handler) take(ctx context.Context, p *push) error {
	if err := judge(ctx, h.auth, p.ref, p.req, false); err != nil || p.req.over() {
		return err
	}
	until, _ := ctx.Deadline()
	p.body.until(until)
	err := h.begin(p)
	if err != nil {
		return err
	}
	defer func() {
		if eerr := p.folder.end(); eerr != nil {
			h.log.failed(p.ref, eerr)
		}
	}()
	if p.req.over() {
		return nil
	}
	offset := p.body.size()
	if err := h.receive(ctx, p); err != nil || p.req.over() {
		return err
	}
	if err := judge(ctx, h.auth, p.ref, p.req, true); err != nil || p.req.over() {
		return err
	}
	if err := h.index(ctx, p, offset); err != nil || p.req.over() {
		return err
	}
	told := false
	if rest := p.req.left(false); len(rest) > 0 {
		theirs, err := h.forEvents(p.ref, rest)
		if err == nil {
			err = h.repos.quota.reserve(ctx, p.ref, theirs, p.body.size()-offset, h.auth.PullBytes)
		}
		if err != nil {
			return err
		}
		if told, err = h.change(ctx, p); err != nil || p.req.over() {
			return err
		}
	}
	if err := h.keep(p); err != nil && !told {
		return err
	} else if err != nil { // the other commands are applied
		_, problem := h.problem(p.ref, err)
		for _, c := range p.req.left(true) {
			c.reason = problem
		}
	}
	if told {
		p.body.close() // frees the disk space while the client waits
		h.settled(ctx, p.transfer, p.ref, p.alive)
	}
	return nil
}

// begin creates the folder of a push, with room for commands of events that are not stored. Without
// room, it refuses these commands.
func (h *Handler) begin(p *push) (err error) {
	var ids []graspsync.EventID
	for _, c := range p.req.left(true) {
		id, _ := eventOf(c.ref) // left(true) returns only refs of events
		ids = append(ids, id)
	}
	p.folder, err = h.repos.staging.begin(p.ref, p.who, ids)
	if p.refuseStaged(err) {
		p.folder, err = h.repos.staging.begin(p.ref, p.who, nil)
	}
	return err
}

// refuseStaged refuses the commands for events that are not stored if err is a quotaError.
func (p *push) refuseStaged(err error) bool {
	var quota quotaError
	if !errors.As(err, &quota) {
		return false
	}
	for _, c := range p.req.left(true) {
		c.reason = quota.Error()
	}
	if p.folder != nil {
		p.folder.release()
	}
	return true
}

// receive reads the rest of a push and charges the quotas.
func (h *Handler) receive(ctx context.Context, p *push) error {
	charge := func() error {
		if err := p.folder.charge(p.body.size()); !p.refuseStaged(err) && err != nil {
			return err
		}
		if p.req.over() {
			return errOver
		}
		return h.disk.room(0)
	}
	p.body.room = func() error {
		slot, err := h.kept.acquire(ctx, p.who, h.cfg.fixed.Wait)
		if err != nil {
			return err
		}
		p.body.closed = append(p.body.closed, p.hold(slot))
		return charge()
	}
	err := charge()
	if err == nil {
		err = p.body.readAll()
	}
	if err == nil {
		err = charge()
	}
	if err == nil {
		err = h.disk.room(p.body.size()) // git writes a second copy
	}
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

var errOver = errors.New("all commands were refused")

// index indexes the pack of a push into its folder. Staged pushes use a separate, smaller set of
// git slots, because every client may make them.
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
	if p.objects = int(binary.BigEndian.Uint32(head[8:])); p.objects == 0 && len(p.req.left(true)) == 0 {
		return nil
	}
	process, err := h.processes(p).acquire(ctx, p.who, h.cfg.fixed.Wait)
	if err != nil {
		return err
	}
	defer process.Release()
	if p.objects > 0 {
		if err := h.indexPack(ctx, p, offset); err != nil {
			return err
		}
		if p.folder.staged() {
			if err := p.folder.measure(); !p.refuseStaged(err) && err != nil {
				return err
			}
		}
	}
	return h.hasTips(ctx, p)
}

// indexPack runs git index-pack on the body from offset, and refuses faulty objects by the rules of
// package fsck.
func (h *Handler) indexPack(ctx context.Context, p *push, offset int64) error {
	err := h.repos.faults.Index(fsck.Git{
		Index: func(options ...string) (stderr string, err error) {
			if _, err := p.body.file.Seek(offset, io.SeekStart); err != nil {
				return "", fmt.Errorf("saving a request: %w", err)
			}
			said := &tail{}
			err = h.among(ctx, p, gitrun.Beside, said, p.body.file, nil, append([]string{"index-pack", "-v", "--stdin", "--fix-thin", "--threads=1",
				"--max-input-size=" + strconv.FormatInt(h.cfg.MaxPush, 10)}, options...)...)
			if fault := (*faultError)(nil); errors.As(err, &fault) {
				stderr = said.b.String()
			}
			return stderr, err
		},
		Run: func(stdout, stderr io.Writer, args ...string) error {
			return h.among(ctx, p, gitrun.Only, &tail{also: stderr}, nil, stdout, args...)
		},
	})
	var fault *fsck.Fault
	if errors.As(err, &fault) {
		return &faultError{fault.Error()}
	}
	var lacks *faultError
	if p.req.shallow && errors.As(err, &lacks) && strings.Contains(lacks.why, "did not receive expected object") {
		return &faultError{"shallow update not allowed: history is missing that is not here either; git fetch --unshallow gets it"}
	}
	return err
}

const packHead = 12

// processes returns the slots for git processes that check the objects of a push.
func (h *Handler) processes(p *push) *slots {
	if len(p.req.left(true)) > 0 {
		return h.staging
	}
	return h.pushes.processes
}

// hasTips refuses commands for events that are not stored if their tips are missing.
func (h *Handler) hasTips(ctx context.Context, p *push) error {
	staged := p.req.left(true)
	if len(staged) == 0 {
		return nil
	}
	var in, out bytes.Buffer
	for _, c := range staged {
		fmt.Fprintln(&in, c.new)
	}
	if err := h.aside(ctx, p, &in, &out, "cat-file", "--batch-check=%(objectname)", "--buffer"); err != nil {
		return err
	}
	lines := strings.Split(out.String(), "\n")
	for i, c := range staged {
		if i >= len(lines) || lines[i] != c.new.String() {
			c.reason = refusedMissing
		}
	}
	return nil
}

// change moves the refs of a push under the lock. It judges the push again, and imports only the
// objects that the refs need. told reports whether the Authority was notified.
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
	if err := judge(ctx, h.auth, p.ref, p.req, true); err != nil {
		return false, err
	}
	rest := p.req.left(false)
	now, err := h.refs(p.ref, rest)
	if err != nil {
		return false, err
	}
	moves := func() (out []*command) {
		if p.req.over() {
			return nil
		}
		for _, c := range p.req.left(false) {
			if now[c.ref] != c.new {
				out = append(out, c)
			}
		}
		return out
	}
	for _, c := range rest {
		if now[c.ref] != c.new && now[c.ref] != c.old {
			c.reason = refusedStale
		}
	}
	var pack string
	for again := true; again; {
		again = false
		some := moves()
		if len(some) == 0 {
			return false, nil
		}
		pack, err = h.pack(ctx, p, some)
		if fault := (*faultError)(nil); errors.As(err, &fault) {
			if again, err = true, p.each(some, func(some []*command) error {
				_, err := h.pack(ctx, p, some)
				return err
			}); err != nil {
				return false, err
			}
			continue
		}
		var bytes int64
		if err == nil {
			bytes, err = h.repos.weigh(pack)
		}
		if err == nil {
			again, err = ration(ctx, h.auth, p.ref, p.dir, some, now, max(1, bytes))
		}
		if err != nil {
			return false, err
		}
	}
	rest = p.req.left(false)
	if err := h.repos.prepare(p.ref, moves(), now); err != nil {
		return false, err
	}
	h.auth.BeforePush(p.ref, names(rest))
	err = h.move(ctx, p, pack, moves(), now)
	if serr := h.repos.settle(p.ref, names(rest)); serr != nil {
		h.cfg.Logger.Error("syncing a push failed", "repo", graspsync.Printable(p.ref.String()), "error", serr)
	}
	done()
	h.pushed(ctx, p.ref, names(rest)) // even after an error, because git may have moved refs
	return true, err
}

type faultError struct{ why string }

// Error returns the reason, for the client.
func (e *faultError) Error() string { return e.why }

// maxTries is the maximum number of calls to find the commands at fault. The remaining commands are
// then refused.
const maxTries = 100

// each calls do for commands. If do reports a fault, each divides the commands into halves and
// repeats, so that only faulty commands are refused. In an atomic push all commands are refused.
func (p *push) each(some []*command, do func([]*command) error) error {
	err := do(some)
	var fault *faultError
	if !errors.As(err, &fault) {
		return err
	}
	if p.tries++; len(some) == 1 || p.req.atomic || p.tries > maxTries {
		for _, c := range some {
			c.reason = fault.why
		}
		return nil
	}
	half := len(some) / 2
	if err := p.each(some[:half], do); err != nil {
		return err
	}
	return p.each(some[half:], do)
}

// pack returns a pack with the objects that commands need and the repository lacks, as a path
// prefix below the root. It is "" if they need none. The received pack is used unless it contains
// other objects.
func (h *Handler) pack(ctx context.Context, p *push, some []*command) (string, error) {
	var ids []nip34.ObjectID
	for _, c := range some {
		if !c.new.IsZero() {
			ids = append(ids, c.new)
		}
	}
	if len(ids) == 0 {
		return "", nil
	}
	list, err := h.disk.scratch()
	if err != nil {
		return "", fmt.Errorf("listing needed objects: %w", err)
	}
	defer func() { _ = list.Close() }() // the file is unlinked
	if err := h.needs(ctx, p, ids, list); err != nil {
		return "", err
	}
	came, err := h.repos.packs(path.Join(p.folder.path, "pack"))
	if err != nil || len(came) == 0 {
		return "", err
	}
	found, err := h.found(came[0], list)
	switch {
	case err != nil || found == 0:
		return "", err
	case found == p.objects && len(p.req.left(true)) == 0:
		return came[0], nil
	}
	if _, err := list.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("listing needed objects: %w", err)
	}
	var name bytes.Buffer
	to := path.Join(p.folder.path, "needed")
	err = h.aside(ctx, p, list, &name, "pack-objects", "--delta-base-offset", "--threads=1", "--progress", filepath.Join(h.repos.dir, filepath.FromSlash(to)))
	return to + "-" + strings.TrimSpace(name.String()), err
}

// needs lists the objects that ids need and that no ref reaches.
func (h *Handler) needs(ctx context.Context, p *push, ids []nip34.ObjectID, list *os.File) error {
	var in bytes.Buffer
	for _, id := range ids {
		fmt.Fprintln(&in, id)
	}
	err := h.aside(ctx, p, &in, list, "rev-list", "--objects", "--stdin", "--not", "--exclude="+barerepo.HiddenRefs+"*", "--all")
	if fault := (*faultError)(nil); errors.As(err, &fault) {
		fault.why = refusedMissing
	}
	return err
}

func (h *Handler) found(pack string, list *os.File) (n int, err error) {
	if _, err := list.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(list)
	var index *barerepo.Index
	for lines.Scan() {
		hexID, _, _ := strings.Cut(lines.Text(), " ")
		if index == nil {
			var err error
			if index, err = barerepo.OpenIndex(h.repos.root, filepath.FromSlash(pack)+".idx", len(hexID)/2); err != nil {
				return 0, fmt.Errorf("reading needed objects: %w", err)
			}
			defer index.Close()
		}
		has, err := index.Has([]byte(hexID))
		if err != nil {
			return 0, fmt.Errorf("reading needed objects: %w", err)
		}
		if has {
			n++
		}
	}
	return n, lines.Err()
}

// move imports a pack and moves refs. It completes even if the client disconnects. If no ref moved,
// it removes the pack.
func (h *Handler) move(ctx context.Context, p *push, pack string, moves []*command, now map[nip34.RefName]nip34.ObjectID) error {
	ctx, stop := h.toItsEnd(ctx)
	defer stop()
	memory, err := h.takeMemory(ctx, p.who, gitrun.AskMemory)
	if err != nil {
		return err
	}
	defer memory.Release()
	at := h.repos.at(p.ref)
	remove, err := h.repos.promote(pack, at)
	if err == nil {
		err = p.each(moves, func(some []*command) error {
			var in bytes.Buffer
			in.WriteString("start\x00")
			for _, c := range some {
				fmt.Fprintf(&in, "update %s\x00%s\x00%s\x00", c.ref, gitID(c.new, now[c.ref]), gitID(now[c.ref], c.new))
			}
			in.WriteString("prepare\x00commit\x00")
			return h.within(ctx, p.dir, gitrun.Limits{Memory: gitrun.AskMemory, CPU: h.cfg.fixed.Timeout}, committer, &in, io.Discard, &tail{}, "update-ref", "--no-deref", "--stdin", "-z", "-m", "push")
		})
	}
	failed := 0
	for _, c := range moves {
		if c.reason != "" {
			failed++
		}
	}
	if err == nil && failed == 0 {
		return nil
	}
	err = errors.Join(err, barerepo.RemoveLocks(ctx, h.repos.root, filepath.FromSlash(at))) // left by a killed git
	if failed == len(moves) {
		err = errors.Join(err, remove())
	}
	return err
}

var committer = []string{"GIT_COMMITTER_NAME=anonymous", "GIT_COMMITTER_EMAIL=anonymous@http.0.0.0.0"}

// aside runs git in a repository with the folder of the push as object directory, so that git
// writes there. It may run as long as it makes progress and no other push waits for the slot.
func (h *Handler) aside(ctx context.Context, p *push, in io.Reader, out io.Writer, args ...string) error {
	return h.among(ctx, p, gitrun.Beside, &tail{}, in, out, args...)
}

// among is aside with a choice of the objects that git can read.
func (h *Handler) among(ctx context.Context, p *push, objects func(folder string) []string, said *tail, in io.Reader, out io.Writer, args ...string) error {
	at, err := filepath.Rel(p.dir, filepath.Join(h.repos.dir, filepath.FromSlash(p.folder.path)))
	if err != nil {
		return fmt.Errorf("running git: %w", err)
	}
	all, each := h.git.pushMemory(p.dir, p.body.size())
	memory, err := h.takeMemory(ctx, p.who, all)
	if err != nil {
		return err
	}
	defer memory.Release()
	limit := gitrun.Limits{Memory: each, CPU: h.cfg.fixed.Timeout}
	switch {
	case args[0] == "pack-objects": // deltas against stored objects are written in full
		limit.File = h.cfg.MaxPush
	case p.folder.staged():
		limit.File = h.repos.staging.part(p.who)
	}
	ctx, stop := h.watch(ctx, p, said, out)
	defer stop()
	return h.within(ctx, p.dir, limit, objects(at), in, out, said, args...)
}

func (h *Handler) within(ctx context.Context, dir string, limit gitrun.Limits, env []string, in io.Reader, out io.Writer, said *tail, args ...string) error {
	cmd, release, err := h.git.inside(ctx, limit, dir, env, args...)
	if err != nil {
		return err
	}
	defer release()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, said
	if err = gitrun.StartNice(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var exit *exec.ExitError
	switch {
	case !errors.As(err, &exit):
	case exit.ExitCode() == gitrun.Died+int(gitrun.FileTooLarge):
		return &limitError{fmt.Sprintf("git %s wrote more than %d bytes", args[0], limit.File)}
	case exit.ExitCode() == gitrun.Died && gitrun.OutOfMemory(said.b.String()):
		return &limitError{fmt.Sprintf("git %s needs more than the %d bytes of memory that it may have", args[0], limit.Memory)}
	case exit.ExitCode() == gitrun.Died && !strings.Contains(said.b.String(), "No space left on device"): // a full disk is not the client's fault
		return &faultError{"git " + args[0] + ": " + strings.ReplaceAll(said.reasons(), h.repos.dir, "")}
	}
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return nil
}

// Time limits of a git run for a push: quietMost without progress, and while other pushes wait,
// shareMost plus shareEach per MiB of the push.
const (
	quietMost = 5 * time.Minute
	shareMost = 20 * time.Second
	shareEach = time.Second
)

// watch cancels the context if the disk is full, if git makes no progress for quietMost, or if git
// has used its share and other pushes wait. It sends progress packets to the client.
func (h *Handler) watch(ctx context.Context, p *push, said *tail, out io.Writer) (_ context.Context, stop func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.fixed.Timeout, &limitError{fmt.Sprintf("git took more than %v", h.cfg.fixed.Timeout)})
	ctx, end := context.WithCancelCause(ctx)
	ended, processes := make(chan struct{}), h.processes(p)
	go func() {
		defer close(ended)
		tick := time.NewTicker(roomPeriod)
		defer tick.Stop()
		began, share := time.Now(), shareMost+time.Duration(p.body.size()>>20)*shareEach
		at, told, last := began, began, int64(-1)
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			done := said.n.Load()
			if file, ok := out.(*os.File); ok {
				if info, err := file.Stat(); err == nil {
					done += info.Size()
				}
			}
			if done != last {
				at, last = time.Now(), done
			}
			if time.Since(told) > aliveEvery {
				p.alive()
				told = time.Now()
			}
			if err := h.disk.room(0); err != nil {
				end(err)
			} else if time.Since(at) > quietMost {
				end(&limitError{fmt.Sprintf("git did not get on for %v", quietMost)})
			} else if _, waiting := processes.Stats(); waiting > 0 && time.Since(began) > share {
				end(fmt.Errorf("%w: git took more than %v, and others wait", errBusy, share))
			}
		}
	}()
	return ctx, func() {
		end(nil)
		cancel()
		<-ended
	}
}

func (h *Handler) keep(p *push) error {
	staged := p.req.left(true)
	if len(staged) == 0 {
		return nil
	}
	tips := make(map[graspsync.EventID]nip34.ObjectID)
	for _, c := range staged {
		id, _ := eventOf(c.ref) // left(true) returns only refs of events
		tips[id] = c.new
	}
	if err := p.folder.keep(tips); err != nil {
		if p.refuseStaged(err) {
			return nil
		}
		return err
	}
	p.notes = append(p.notes, fmt.Sprintf("stored for %v, until the event arrives", h.repos.staging.limits.hold))
	h.auth.Staged(p.ref, slices.Collect(maps.Keys(tips)))
	return nil
}

// gitID returns an id for git. The null id has the length of other.
func gitID(id, other nip34.ObjectID) string {
	switch {
	case !id.IsZero():
		return id.String()
	case !other.IsZero():
		return strings.Repeat("0", len(other.String()))
	}
	return strings.Repeat("0", 40)
}

// The functions below change a repository. The caller holds its lock.

// prepare logs the old values of deleted refs, because git deletes the log of a ref with the ref.
func (r *Repositories) prepare(ref graspsync.RepoRef, moves []*command, now map[nip34.RefName]nip34.ObjectID) error {
	var removed []barerepo.Moved
	for _, c := range moves {
		if c.new.IsZero() {
			removed = append(removed, barerepo.Moved{Name: c.ref, Old: now[c.ref]})
		}
	}
	if len(removed) > 0 {
		if err := barerepo.LogRemoved(r.root, filepath.FromSlash(r.at(ref)), removed, time.Now()); err != nil {
			return fmt.Errorf("logging deleted refs: %w", err)
		}
	}
	return nil
}

func (r *Repositories) packs(folder string) (out []string, err error) {
	entries, err := fs.ReadDir(r.root.FS(), folder)
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".idx"); ok {
			out = append(out, path.Join(folder, base))
		}
	}
	return out, err
}

// packFiles are the extensions of the files of a pack, in the order of import. The index is last,
// because git finds packs by their index. The reverse index is optional.
var packFiles = []string{".pack", ".rev", ".idx"}

// weigh returns the size of a pack in bytes. pack may be "".
func (r *Repositories) weigh(pack string) (n int64, err error) {
	if pack == "" {
		return 0, nil
	}
	for _, ext := range packFiles {
		info, err := r.root.Stat(pack + ext)
		if err != nil && (ext != ".rev" || !errors.Is(err, fs.ErrNotExist)) {
			return 0, fmt.Errorf("measuring a push: %w", err)
		} else if err == nil {
			n += info.Size()
		}
	}
	return n, nil
}

// promote moves a synced pack into a repository, durably. pack may be "". remove deletes the pack
// if it was new.
func (r *Repositories) promote(pack, at string) (remove func() error, err error) {
	remove = func() error { return nil }
	if pack == "" {
		return remove, nil
	}
	_, hash, _ := strings.Cut(path.Base(pack), "-")
	to := path.Join(at, "objects/pack", "pack-"+hash)
	if _, err := r.root.Stat(to + ".idx"); errors.Is(err, fs.ErrNotExist) {
		remove = func() (err error) {
			for _, ext := range slices.Backward(packFiles) {
				err = errors.Join(err, ifExists(r.root.Remove(to+ext)))
			}
			return err
		}
	} else if err != nil {
		return remove, fmt.Errorf("looking up a pack: %w", err)
	}
	for _, ext := range packFiles {
		if err := r.root.Rename(pack+ext, to+ext); err != nil && (ext != ".rev" || !errors.Is(err, fs.ErrNotExist)) {
			return remove, fmt.Errorf("importing a pack: %w", err)
		}
	}
	return remove, barerepo.SyncPacks(filepath.FromSlash(at), r.sync)
}

// settle makes the changes of a push durable. Git syncs files but not their folders. After an error
// the lock is not granted until a sync succeeded.
func (r *Repositories) settle(ref graspsync.RepoRef, names []nip34.RefName) error {
	if err := barerepo.SyncRefs(filepath.FromSlash(r.at(ref)), names, r.sync); err != nil {
		r.mu.Lock()
		r.unsure[ref] = struct{}{}
		r.mu.Unlock()
		return err
	}
	return nil
}

// syncPushed syncs all folders that a push may have changed.
func (r *Repositories) syncPushed(at string) error {
	errs := []error{barerepo.SyncPacks(filepath.FromSlash(at), r.sync)}
	for _, folder := range []string{"refs", "logs"} {
		errs = append(errs, fs.WalkDir(r.root.FS(), path.Join(at, folder), func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = r.sync(filepath.FromSlash(name))
			}
			return ifExists(err)
		}))
	}
	return errors.Join(append(errs, r.sync(filepath.FromSlash(at)))...)
}

const lockMark = "lock-"

// sweepLocked removes stale git locks of repositories that were locked when the process was killed,
// and syncs their changes. The caller holds the lock of the folder, so no git process is running.
func (r *Repositories) sweepLocked() error {
	entries, err := fs.ReadDir(r.root.FS(), incoming)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), lockMark)
		if !ok {
			continue // temporary data
		}
		at := strings.Replace(name, "-", "/", 1) // inverse of mark
		if _, err := r.root.Stat(path.Join(at, "HEAD")); err != nil {
			errs = append(errs, ifExists(err)) // keeps the mark of an existing repository
			continue
		}
		errs = append(errs, barerepo.RemoveLocks(context.Background(), r.root, filepath.FromSlash(at)), r.syncPushed(at))
	}
	return errors.Join(errs...)
}
