package gitserve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
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
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// push is a push while it is taken in.
type push struct {
	ref graspsync.RepoRef
	dir string // of the repository
	*transfer
	body    *body
	req     *request
	folder  *upload  // what git writes goes there
	objects int      // in the pack, as the client sent it
	tries   int      // of each
	alive   func()   // tells the client that we are here
	notes   []string // for the client
}

// take takes in a push. The pack is indexed in a folder of its own, without the lock of the
// repository. The objects that allowed refs need, and no others, become part of the repository.
// What is for events that are not stored stays in its folder and goes to the staging area. Every
// command that is refused has its reason then; an error is the reason of all the others, of which
// none is done.
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
	var l *reservation
	if rest := p.req.left(false); len(rest) > 0 {
		theirs, err := h.forEvents(p.ref, rest)
		if err == nil {
			l, err = h.repos.quota.begin(ctx, p.ref, theirs, h.auth.PullBytes)
		}
		defer func() { l.end() }()
		if err != nil {
			return err
		}
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
	if len(p.req.left(false)) > 0 {
		if told, err = h.change(ctx, p, l); err != nil || p.req.over() {
			return err
		}
	}
	if err := h.keep(p); err != nil && !told {
		return err
	} else if err != nil { // the others are done
		_, problem := h.problem(p.ref, err)
		for _, c := range p.req.left(true) {
			c.reason = problem
		}
	}
	if told {
		l.end()
		p.body.close() // what it takes up is free while the client waits
		h.settled(ctx, p.transfer, p.ref, p.alive)
	}
	return nil
}

// begin makes a folder for a push, with room for what is for events that are not stored. Where there
// is none these commands are refused.
func (h *Handler) begin(p *push) (err error) {
	var ids []graspsync.EventID
	for _, c := range p.req.left(true) {
		id, _ := eventOf(c.ref) // or it would not be one of them
		ids = append(ids, id)
	}
	p.folder, err = h.repos.staging.begin(p.ref, p.who, ids)
	if p.refuseStaged(err) {
		p.folder, err = h.repos.staging.begin(p.ref, p.who, nil)
	}
	return err
}

// refuseStaged refuses what is for events that are not stored if err is that there is no room for it.
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

// receive reads what is left of a push, as long as there is room for it.
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
		err = h.disk.room(p.body.size()) // git writes it once more
	}
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

// errOver ends what is done for a push of which nothing is left.
var errOver = errors.New("nothing is left of the push")

// index has git index the pack of a push into its folder, when there is a place for that: what
// anybody may push has places of its own, and few.
func (h *Handler) index(ctx context.Context, p *push, offset int64) error {
	sets := slices.ContainsFunc(p.req.commands, func(c *command) bool { return !c.new.IsZero() })
	head := make([]byte, packHead)
	if n, err := p.body.file.ReadAt(head, offset); !sets && n == 0 {
		return nil
	} else if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("keeping a request: %w", err)
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

// indexPack has git index the pack of a push, which begins somewhere in its body, and refuses faults of
// objects by the rules of package fsck.
func (h *Handler) indexPack(ctx context.Context, p *push, offset int64) error {
	err := h.repos.faults.Index(fsck.Git{
		Index: func(options ...string) (stderr string, err error) {
			if _, err := p.body.file.Seek(offset, io.SeekStart); err != nil {
				return "", fmt.Errorf("keeping a request: %w", err)
			}
			said := &tail{}
			err = h.among(ctx, p, gitrun.Beside, said, p.body.file, nil, append([]string{"index-pack", "-v", "--stdin", "--fix-thin", "--threads=1",
				"--max-input-size=" + strconv.FormatInt(h.cfg.MaxPush, 10)}, options...)...)
			if fault := (*faultError)(nil); errors.As(err, &fault) {
				stderr = said.b.String()
			}
			return stderr, err
		},
		Run: func(alone bool, stdin io.Reader, stdout, stderr io.Writer, args ...string) error {
			objects := gitrun.Beside
			if alone {
				objects = gitrun.Only
			}
			return h.among(ctx, p, objects, &tail{also: stderr}, stdin, stdout, args...)
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

// packHead is the length of what is before the objects of a pack: a mark, a version and their number.
const packHead = 12

// processes returns the slots for git processes that check the objects of a push.
func (h *Handler) processes(p *push) *slots {
	if len(p.req.left(true)) > 0 {
		return h.staging
	}
	return h.pushes.processes
}

// hasTips refuses what is for events that are not stored and did not come.
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

// change moves the refs of a push when it is its turn, unless that is not allowed any more. What
// they need becomes part of the repository first, and nothing else: anybody may push what a state
// allows. told reports whether the Authority was told of it.
func (h *Handler) change(ctx context.Context, p *push, l *reservation) (told bool, err error) {
	_ = p.setQueued(true) // turn returns if it has to end
	done, err := h.turn(ctx, p.who, p.ref)
	left := p.setQueued(false) // also at the last moment: nothing was done yet
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
			err = l.charge(bytes)
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
		h.cfg.Logger.Error("a push may not be on the disk", "repo", graspsync.Printable(p.ref.String()), "error", serr)
	}
	done()
	h.pushed(ctx, p.ref, names(rest)) // however git ended: it may have moved refs before
	return true, err
}

// faultError is why git does not do something with what a client has sent.
type faultError struct{ why string }

// Error says it to who pushed.
func (e *faultError) Error() string { return e.why }

// maxTries is the maximum number of times that it is tried to find out which commands of a push are
// at fault; what is left then is refused.
const maxTries = 100

// each does something for commands. If that fails by the fault of some it is done for each half, so
// that only those are refused, or all if the client wants all or nothing.
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

// pack returns where a pack is that has what commands need and the repository has not: how the names
// of its files begin, below the root, empty if they need nothing. It is the one that came, unless
// that has more.
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
		return "", fmt.Errorf("keeping what is needed: %w", err)
	}
	defer func() { _ = list.Close() }() // it has no name: nothing is left of it
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
		return "", fmt.Errorf("keeping what is needed: %w", err)
	}
	var name bytes.Buffer
	to := path.Join(p.folder.path, "needed")
	err = h.aside(ctx, p, list, &name, "pack-objects", "--delta-base-offset", "--threads=1", "--progress", filepath.Join(h.repos.dir, filepath.FromSlash(to)))
	return to + "-" + strings.TrimSpace(name.String()), err
}

// needs lists the objects that ids need and no ref has.
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

// found counts the objects of a list that are in a pack.
func (h *Handler) found(pack string, list *os.File) (n int, err error) {
	if _, err := list.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(list)
	var index *barerepo.Index
	for lines.Scan() {
		hexID, _, _ := strings.Cut(lines.Text(), " ")
		id, err := hex.DecodeString(hexID)
		if err == nil && index == nil {
			if index, err = barerepo.OpenIndex(h.repos.root, filepath.FromSlash(pack)+".idx", len(id)); err == nil {
				defer index.Close()
			}
		}
		if err != nil {
			return 0, fmt.Errorf("reading what is needed: %w", err)
		}
		has, err := index.Has(id)
		if err != nil {
			return 0, fmt.Errorf("reading what is needed: %w", err)
		}
		if has {
			n++
		}
	}
	return n, lines.Err()
}

// move gives a pack its place and moves refs. It goes on to its end whether the client is there or
// not. If no ref has moved the pack goes.
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
			return h.within(ctx, p.dir, limits{memory: gitrun.AskMemory, cpu: h.cfg.fixed.Timeout}, committer, &in, io.Discard, &tail{}, "update-ref", "--no-deref", "--stdin", "-z", "-m", "push")
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
	err = errors.Join(err, barerepo.RemoveLocks(ctx, h.repos.root, filepath.FromSlash(at))) // of what git has left that was killed
	if failed == len(moves) {
		err = errors.Join(err, remove())
	}
	return err
}

// committer is who moves refs, in their logs.
var committer = []string{"GIT_COMMITTER_NAME=anonymous", "GIT_COMMITTER_EMAIL=anonymous@http.0.0.0.0"}

// aside runs git in a repository, with the folder of a push before its objects: what is written goes
// there. It may take as long as it gets on and no others wait for its place.
func (h *Handler) aside(ctx context.Context, p *push, in io.Reader, out io.Writer, args ...string) error {
	return h.among(ctx, p, gitrun.Beside, &tail{}, in, out, args...)
}

// among is aside with a choice of the objects that git sees.
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
	limit := limits{memory: each, cpu: h.cfg.fixed.Timeout}
	switch {
	case args[0] == "pack-objects": // deltas on what is stored are written out in full
		limit.file = h.cfg.MaxPush
	case p.folder.staged():
		limit.file = h.repos.staging.part(p.who)
	}
	ctx, stop := h.watch(ctx, p, said, out)
	defer stop()
	return h.within(ctx, p.dir, limit, objects(at), in, out, said, args...)
}

// within runs git in a repository to its end.
func (h *Handler) within(ctx context.Context, dir string, limit limits, env []string, in io.Reader, out io.Writer, said *tail, args ...string) error {
	cmd, release, err := h.git.inside(ctx, limit, dir, env, args...)
	if err != nil {
		return err
	}
	defer release()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, said
	if err = startNice(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var exit *exec.ExitError
	switch {
	case !errors.As(err, &exit):
	case exit.ExitCode() == died+int(syscall.SIGXFSZ):
		return &limitError{fmt.Sprintf("git %s wrote more than %d bytes", args[0], limit.file)}
	case exit.ExitCode() == died && gitrun.OutOfMemory(said.b.String()):
		return &limitError{fmt.Sprintf("git %s needs more than the %d bytes of memory that it may have", args[0], limit.memory)}
	case exit.ExitCode() == died && !strings.Contains(said.b.String(), "No space left on device"): // a full disk is not the client's fault
		return &faultError{"git " + args[0] + ": " + strings.ReplaceAll(said.reasons(), h.repos.dir, "")}
	}
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return nil
}

// died is what git returns that gives up; a shell adds the number of a signal to that.
const died = 128

// What a run of git for a push may take: quietMost without getting on, and, while others wait for
// its place, shareMost and shareEach for each MiB of the push.
const (
	quietMost = 5 * time.Minute
	shareMost = 20 * time.Second
	shareEach = time.Second
)

// watch ends a context when there is no more room on the disk, when git has not said or written
// anything for long, and when it has taken its share and others wait. It tells the client now and
// then that we are here.
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

// keep stages what is for events that are not stored.
func (h *Handler) keep(p *push) error {
	staged := p.req.left(true)
	if len(staged) == 0 {
		return nil
	}
	tips := make(map[graspsync.EventID]nip34.ObjectID)
	for _, c := range staged {
		id, _ := eventOf(c.ref) // or it would not be one of them
		tips[id] = c.new
	}
	if err := p.folder.keep(tips); err != nil {
		if p.refuseStaged(err) {
			return nil
		}
		return err
	}
	p.notes = append(p.notes, fmt.Sprintf("kept for %v, until the event comes", h.repos.staging.limits.hold))
	h.auth.Staged(p.ref, slices.Collect(maps.Keys(tips)))
	return nil
}

// gitID is an id as git writes it; other says how long a null one is.
func gitID(id, other nip34.ObjectID) string {
	switch {
	case !id.IsZero():
		return id.String()
	case !other.IsZero():
		return strings.Repeat("0", len(other.String()))
	}
	return strings.Repeat("0", 40)
}

// What is done to a repository around a push, under its lock.

// prepare logs the values of refs that a push removes, because git forgets the log of a ref with the ref.
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

// packs returns how the names of the files of each pack in a folder begin.
func (r *Repositories) packs(folder string) (out []string, err error) {
	entries, err := fs.ReadDir(r.root.FS(), folder)
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".idx"); ok {
			out = append(out, path.Join(folder, base))
		}
	}
	return out, err
}

// packFiles are the files of a pack, in the order in which they get their place: git finds a pack by
// its index. The reverse index is missing in some.
var packFiles = []string{".pack", ".rev", ".idx"}

// weigh returns how many bytes a pack has; there may be none.
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

// promote makes a pack that git has synced part of a repository, durably; there may be none. remove
// takes it away again, if it was not there before.
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
		return remove, fmt.Errorf("looking for a pack: %w", err)
	}
	for _, ext := range packFiles {
		if err := r.root.Rename(pack+ext, to+ext); err != nil && (ext != ".rev" || !errors.Is(err, fs.ErrNotExist)) {
			return remove, fmt.Errorf("giving a pack its place: %w", err)
		}
	}
	return remove, barerepo.SyncPacks(filepath.FromSlash(at), r.sync)
}

// settle makes what a push has changed durable, before anybody sees it who relies on
// that: git syncs files, but not the folders in which it gives them a name. If the disk
// fails nobody gets the lock until it has worked.
func (r *Repositories) settle(ref graspsync.RepoRef, names []nip34.RefName) error {
	if err := barerepo.SyncRefs(filepath.FromSlash(r.at(ref)), names, r.sync); err != nil {
		r.mu.Lock()
		r.unsure[ref] = struct{}{}
		r.mu.Unlock()
		return err
	}
	return nil
}

// syncPushed makes durable what a push may have changed of which it is not known what.
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

// lockMark begins the names of the files that say which repositories are locked, for a push or for maintenance.
const lockMark = "lock-"

// sweepLocked removes what pushes, and whoever else had a repository locked, have left that
// were killed with the process that they worked for, and makes durable what they had moved.
// It is called with the lock of the folder: git has gone as well.
func (r *Repositories) sweepLocked() error {
	entries, err := fs.ReadDir(r.root.FS(), incoming)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), lockMark)
		if !ok {
			continue // it was about to come or go
		}
		at := strings.Replace(name, "-", "/", 1) // as mark has it
		if _, err := r.root.Stat(path.Join(at, "HEAD")); err != nil {
			errs = append(errs, ifExists(err)) // if it is there, its mark must stay
			continue
		}
		errs = append(errs, barerepo.RemoveLocks(context.Background(), r.root, filepath.FromSlash(at)), r.syncPushed(at))
	}
	return errors.Join(errs...)
}
