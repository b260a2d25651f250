package gitserve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// upload is a push that has something for events which are not here.
type upload struct {
	ref graspsync.RepoRef
	dir string // of the repository
	*visit
	body *body
	req  request
	said verdict
}

// parts returns the commands that are for events which are not here, and the others.
func (p *upload) parts() (staging, rest []command) {
	for _, c := range p.req.commands {
		if _, ok := p.said.unknown[c.ref]; ok {
			staging = append(staging, c)
		} else {
			rest = append(rest, c)
		}
	}
	return staging, rest
}

// stage takes in a push that has something for events which are not here. Nothing of
// that becomes part of the repository, nor is the repository locked for it: the pack is
// indexed into the staging area. What else is in the push is packed anew from there, so
// that git is given just what the refs need that the newest state allows.
//
// Everything that may be refused is refused before anything is done. Then each ref is
// reported for itself, unless the client wants all or none.
func (h *Handler) stage(ctx context.Context, w http.ResponseWriter, p *upload) {
	results, err := h.stageAll(ctx, p)
	if err != nil {
		h.refuseStaged(w, p, err)
		return
	}
	word := fmt.Sprintf("kept for %v, until the event comes", h.repos.staging.hold)
	report(w, p.req, func() error {
		if _, rest := p.parts(); len(rest) > 0 {
			h.settled(ctx, p.visit, p.ref, sayAlive(flusher{w, http.NewResponseController(w)}, p.req))
		}
		return writeResults(w, p.req, results, word)
	})
}

// refusedError is why nothing of a push is done: the reasons of some refs, or else one of
// all that are for events which are not here.
type refusedError struct {
	why  string
	refs map[nip34.RefName]string
}

// Error says it to who pushed.
func (e *refusedError) Error() string { return e.why }

// refuseStaged says why nothing of a push was done.
func (h *Handler) refuseStaged(w http.ResponseWriter, p *upload, err error) {
	var quota *quotaError
	refused := &refusedError{}
	switch {
	case errors.As(err, &quota):
		refused.why = quota.Error()
	case errors.As(err, &refused):
	default:
		h.refuse(w, p.ref, p.who.client, p.body, p.req, nil, err)
		return
	}
	if refused.refs == nil {
		refused.refs = make(map[nip34.RefName]string)
		staging, _ := p.parts()
		for _, c := range staging {
			refused.refs[c.ref] = refused.why
		}
	}
	h.refuse(w, p.ref, p.who.client, p.body, p.req, refused.refs, nil)
}

// stageAll is stage up to the report, for which it returns why some of the push was not
// done. After an error nothing was.
func (h *Handler) stageAll(ctx context.Context, p *upload) (results map[nip34.RefName]string, err error) {
	staging, _ := p.parts()
	results = make(map[nip34.RefName]string)
	tips := make(map[graspsync.EventID]nip34.ObjectID)
	var ids []graspsync.EventID
	for _, c := range staging {
		id, _ := eventOf(c.ref) // or it would not be one of them
		if _, again := tips[id]; again {
			return nil, fmt.Errorf("%w: a ref twice", errRequest)
		}
		tips[id] = c.new
		ids = append(ids, id)
	}
	a, err := h.repos.staging.begin(p.ref, p.who.client, ids)
	if err != nil {
		return nil, err
	}
	defer func() {
		if eerr := a.end(); eerr != nil {
			h.failures.warn(p.ref, eerr)
		}
	}()
	offset := p.body.size()
	if err := h.receiveStaged(p.body, a); err != nil {
		return nil, err
	}
	again, err := judge(ctx, h.auth, p.ref, p.req.commands)
	switch {
	case err != nil:
		return nil, err
	case len(again.refused) > 0:
		return nil, &refusedError{refs: again.refused}
	case len(again.unknown) != len(p.said.unknown):
		return nil, &refusedError{why: refusedMeanwhile}
	}
	file, err := h.prepare(ctx, p, a, offset)
	if err != nil {
		return nil, err
	}
	if file != nil {
		defer func() { _ = file.Close() }() // it has no name: nothing is left of it
		if results, err = h.pushRest(ctx, p, file); err != nil {
			return nil, err
		}
	}
	refuse := func(reason string) {
		for _, c := range staging {
			results[c.ref] = reason
		}
	}
	if p.req.atomic && len(results) > 0 {
		refuse(refusedOther)
		return results, nil
	}
	switch err := a.keep(p.ref, p.who.client, tips); {
	case err != nil && file == nil:
		return nil, err
	case err != nil: // the rest is done
		h.failures.warn(p.ref, err)
		refuse("it could not be kept")
		return results, nil
	}
	h.auth.Staged(p.ref, ids)
	return results, nil
}

// prepare has git look at what came, when it has a place for that. It returns the body of
// a push of what is not to be staged, if there is any.
func (h *Handler) prepare(ctx context.Context, p *upload, a *arrival, offset int64) (*os.File, error) {
	leave, err := h.staging.enter(ctx, p.who, h.cfg.fixed.Wait, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBusy, err)
	}
	defer leave()
	staging, rest := p.parts()
	if err := h.indexStaged(ctx, p, a, offset); err != nil {
		return nil, err
	}
	if err := h.hasTips(ctx, p, a, staging); err != nil || len(rest) == 0 {
		return nil, err
	}
	return h.restOf(ctx, p, a, rest)
}

// receiveStaged reads what is left of a push, as long as there is room for it.
func (h *Handler) receiveStaged(b *body, a *arrival) error {
	b.room = func() error { return h.disk.room(0) }
	if err := b.room(); err != nil {
		return err
	}
	chunk := make([]byte, 64<<10)
	for {
		_, err := b.Read(chunk)
		if qerr := a.charge(b.size()); qerr != nil {
			return qerr
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	b.rest()
	return h.disk.room(b.size()) // git writes it once more
}

// stageTime bounds the time that each process of git may compute with a staged push of a
// size: a small pack can stand for very much work, and anybody may send one. What is
// honest and needs more is pushed after its event.
func stageTime(size int64) time.Duration { return pushTime(size) - 15*time.Second }

// stageNice is the priority of such work: everybody else's goes first.
const stageNice = 10

// indexStaged has git index the pack of a push into its folder.
func (h *Handler) indexStaged(ctx context.Context, p *upload, a *arrival, offset int64) error {
	if _, err := p.body.file.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("keeping a request: %w", err)
	}
	_, err := h.aside(ctx, p, a, p.body.file, nil, "index-pack", "--stdin", "--fix-thin", barerepo.Strict(), "--threads=1",
		"--max-input-size="+strconv.FormatInt(h.cfg.MaxPush, 10))
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		h.failures.warn(p.ref, err)
		return &refusedError{why: "git did not take the pack: it is broken, too much work, or lacks objects"}
	}
	if err != nil {
		return err
	}
	return a.measure()
}

// hasTips finds out whether what a push says came is here.
func (h *Handler) hasTips(ctx context.Context, p *upload, a *arrival, staging []command) error {
	var in bytes.Buffer
	for _, c := range staging {
		fmt.Fprintln(&in, c.new)
	}
	out, err := h.aside(ctx, p, a, &in, nil, "cat-file", "--batch-check=%(objectname)", "--buffer")
	if err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if i >= len(staging) || line != staging[i].new.String() {
			return &refusedError{why: "missing necessary objects"}
		}
	}
	return nil
}

// pushRest has git do what else is in a push, and returns why it did not do some of it.
func (h *Handler) pushRest(ctx context.Context, p *upload, file *os.File) (map[nip34.RefName]string, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("keeping a request: %w", err)
	}
	only, err := readRequest(io.NewSectionReader(file, 0, maxCommandBytes), h.cfg.fixed.MaxCommands, maxCommandBytes)
	if err != nil {
		return nil, err
	}
	theirs, err := h.forEvents(p.ref, only)
	if err != nil {
		return nil, err
	}
	l, err := h.repos.ceiling.begin(ctx, p.ref, theirs, h.auth.Displaced)
	defer l.end()
	if err == nil {
		err = l.charge(info.Size())
	}
	if err != nil {
		return nil, err
	}
	said := &answered{header: make(http.Header)}
	refused, _, err := h.change(ctx, said, p.visit, p.ref, only, call{
		dir: p.dir, path: "/" + receivePack, method: http.MethodPost, kind: "application/x-git-receive-pack-request", body: file,
		cpu: pushTime(info.Size()),
	})
	if err != nil {
		return nil, err
	}
	if len(refused) > 0 {
		return nil, &refusedError{refs: refused}
	}
	return readReport(&said.body, only.commands), nil
}

// restOf makes the body of a push that has only some of the commands, with just what they
// need.
func (h *Handler) restOf(ctx context.Context, p *upload, a *arrival, rest []command) (_ *os.File, err error) {
	refs, err := h.aside(ctx, p, a, nil, nil, "for-each-ref", "--format=%(objectname)")
	if err != nil {
		return nil, err
	}
	file, err := h.disk.scratch()
	if err != nil {
		return nil, fmt.Errorf("keeping a request: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	var in bytes.Buffer
	for _, c := range rest {
		if !c.new.IsZero() {
			fmt.Fprintln(&in, c.new)
		}
	}
	needsPack := in.Len() > 0
	in.WriteString("--not\n")
	in.Write(refs)
	if err := writeCommands(file, rest, p.req.atomic); err != nil {
		return nil, fmt.Errorf("keeping a request: %w", err)
	}
	if needsPack {
		if err := h.packRest(ctx, p, a, &in, file); err != nil {
			return nil, err
		}
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("keeping a request: %w", err)
	}
	return file, nil
}

// packRest adds to a file what some commands need. What is a delta on something that the
// refs have stays one, if git finds that under the same name, or becomes one on something
// else; without a window git looks for neither. What is left is written out in full: a few
// bytes may stand for very many.
func (h *Handler) packRest(ctx context.Context, p *upload, a *arrival, in io.Reader, file *os.File) error {
	watched, stop := h.disk.whileRoom(ctx)
	_, err := h.aside(watched, p, a, in, file, "pack-objects", "--revs", "--thin", "--stdout", "-q", "--delta-base-offset", "--threads=1")
	full := context.Cause(watched)
	stop()
	info, serr := file.Stat()
	if serr != nil {
		return fmt.Errorf("keeping a request: %w", serr)
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return err
	case full != nil:
		return full
	case info.Size() > h.cfg.MaxPush:
		return &limitError{h.cfg.MaxPush}
	case errors.As(err, &exit):
		return &refusedError{why: "missing necessary objects"}
	case err != nil:
		return err
	}
	return h.disk.room(info.Size()) // git writes it once more
}

// aside runs git in a repository, with the folder of an arrival before its objects: what
// is written goes there. Its output is returned, unless it goes to a file.
func (h *Handler) aside(ctx context.Context, p *upload, a *arrival, in io.Reader, out *os.File, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.fixed.Timeout)
	defer cancel()
	at, err := filepath.Rel(p.dir, filepath.Join(h.repos.dir, filepath.FromSlash(a.folder)))
	if err != nil {
		return nil, fmt.Errorf("running git: %w", err)
	}
	limit := limits{cpu: stageTime(p.body.sent()), file: h.cfg.MaxPush}
	if out == nil { // else it is a push
		limit.file = max(1, a.left()+a.bytes())
	}
	cmd, release, err := h.git.inside(ctx, limit, p.dir, gitrun.Beside(at), args...)
	if err != nil {
		return nil, err
	}
	defer release()
	cmd.Stdin = in
	var kept bytes.Buffer
	said := &tail{}
	cmd.Stdout, cmd.Stderr = &kept, said
	if out != nil {
		cmd.Stdout = out
	}
	if err = cmd.Start(); err == nil {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, stageNice) // without it, it only disturbs more
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return kept.Bytes(), nil
}

// answered is what git answers us, and no client.
type answered struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (a *answered) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answered) WriteHeader(status int) { a.status = status }

// Write implements [io.Writer].
func (a *answered) Write(p []byte) (int, error) { return a.body.Write(p) }

// writeCommands writes what comes before the pack of a push, for git.
func writeCommands(w io.Writer, commands []command, atomic bool) error {
	out := bufio.NewWriter(w)
	for i, c := range commands {
		old, updated := gitID(c.old, c.new), gitID(c.new, c.old)
		line := old + " " + updated + " " + c.ref.String()
		if i == 0 {
			line += "\x00 report-status object-format=" + formatOf(c).String()
			if atomic {
				line += " atomic"
			}
		}
		writeLine(out, line)
	}
	_, err := out.WriteString("0000")
	return errors.Join(err, out.Flush())
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

func formatOf(c command) nip34.ObjectFormat {
	if c.new.IsZero() {
		return c.old.Format()
	}
	return c.new.Format()
}

// readReport reads what git says became of commands, and returns why some were not done.
func readReport(r io.Reader, commands []command) map[nip34.RefName]string {
	done := make(map[string]bool)
	reasons := make(map[string]string)
	for {
		line, flush, err := readLine(r)
		if err != nil || flush {
			break
		}
		verb, rest, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
		switch name, reason, _ := strings.Cut(rest, " "); verb {
		case "ok":
			done[name] = true
		case "ng":
			reasons[name] = reason
		}
	}
	out := make(map[nip34.RefName]string)
	for _, c := range commands {
		if name := c.ref.String(); !done[name] {
			out[c.ref] = "failed to update ref"
			if reason := reasons[name]; reason != "" {
				out[c.ref] = reason
			}
		}
	}
	return out
}
