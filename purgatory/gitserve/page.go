package gitserve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// Pages answers browsers. Its methods may be called concurrently. They get GET and HEAD requests only.
type Pages interface {
	// Repository answers a request for the URL of a repository.
	Repository(w http.ResponseWriter, r *http.Request, v View)
	// Missing answers a request for the URL of an unknown repository.
	Missing(w http.ResponseWriter, r *http.Request)
}

// View is the content of a repository that a page shows. Clients wrote all texts. They are not
// escaped.
type View struct {
	Ref graspsync.RepoRef
	// Refs are the refs by full name, such as refs/heads/main.
	Refs map[string]nip34.ObjectID
	// HEAD is the full name of the default branch, or "". The fields below are empty without it, if
	// git failed, or if the object is larger than 256 KiB.
	HEAD string
	// Changed is the time of the newest commit of HEAD by its committer, and Subject the first line
	// of its message.
	Changed time.Time
	Subject string
	// Readme is the text of the README file at HEAD, and ReadmeName the name of that file.
	Readme     []byte
	ReadmeName string
}

const (
	pageSlots = 2               // pages that are read and rendered concurrently, one for each client
	maxShown  = 256 << 10       // bytes of a commit or a file
	viewTime  = 5 * time.Second // for git to read them
)

// readmes are the names of README files, in order of preference.
var readmes = []string{"README.md", "readme.md", "Readme.md", "README.markdown", "README", "README.txt", "README.rst", "README.adoc", "README.org"}

// plain is the default of [Config].Pages.
type plain struct{}

// Repository implements [Pages].
func (plain) Repository(w http.ResponseWriter, _ *http.Request, _ View) {
	fmt.Fprintln(w, "a git repository: clone it from this URL")
}

// Missing implements [Pages].
func (plain) Missing(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// rendered releases the slot of a page when its answer begins, because a client may read slowly.
type rendered struct {
	http.ResponseWriter
	slot *limit.Slot
}

// WriteHeader implements [http.ResponseWriter].
func (r rendered) WriteHeader(status int) {
	r.slot.Release()
	r.ResponseWriter.WriteHeader(status)
}

// page serves the page of a repository. It holds a slot of pages until the answer begins, because
// rendering takes as much time as git.
func (h *Handler) page(ctx context.Context, w http.ResponseWriter, t *transfer, r *http.Request, ref graspsync.RepoRef, dir string) {
	process, err := h.pages.processes.acquire(ctx, t.who, h.cfg.fixed.Wait)
	if err != nil {
		busy(w)
		return
	}
	defer process.Release() // released by defer too, because Pages may panic
	v := View{Ref: ref}
	if v.Refs, v.HEAD, err = h.repos.shown(h.repos.at(ref)); err != nil {
		h.fail(w, ref, missing(err))
		return
	}
	if tip, ok := v.Refs[v.HEAD]; ok {
		if err := h.read(ctx, t, dir, tip.String(), &v); err != nil {
			h.log.failed(ref, err) // the page is served without them
		}
	}
	h.cfg.Pages.Repository(rendered{w, process}, r, v)
}

// read reads the commit tip and its README.
func (h *Handler) read(ctx context.Context, t *transfer, dir, tip string, v *View) error {
	ctx, cancel := context.WithTimeout(ctx, viewTime)
	defer cancel()
	count, _ := gitrun.Packs(dir)
	bytes := min(2*gitrun.AskMemory+28*count, h.git.memory.Part) // git maps the index of a pack
	memory, err := h.takeMemory(ctx, t.who, bytes)
	if err != nil {
		return err
	}
	defer memory.Release()
	cmd, release, err := h.git.inside(ctx, gitrun.Limits{Memory: bytes - besides/2, CPU: viewTime, File: 1}, dir, nil, "cat-file", "--batch-command")
	if err != nil {
		return err
	}
	defer release()
	said := &tail{}
	cmd.Stderr = said
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("running git: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = gitrun.StartNice(cmd)
	}
	if err != nil {
		return fmt.Errorf("running git: %w", err)
	}
	err = objects{in, bufio.NewReader(out)}.show(tip, v)
	_ = in.Close() // git then ends
	if werr := cmd.Wait(); err == nil {
		err = werr
	}
	if err != nil {
		return fmt.Errorf("git cat-file: %w: %s", err, said)
	}
	return nil
}

// objects asks a running git cat-file --batch-command.
type objects struct {
	in  io.Writer
	out *bufio.Reader
}

func (o objects) show(tip string, v *View) error {
	commit, err := o.content(tip, "commit")
	if err != nil {
		return err
	}
	v.Changed, v.Subject = parseCommit(string(commit))
	for _, name := range readmes {
		if v.Readme, err = o.content(tip+":"+name, "blob"); err != nil || v.Readme != nil {
			v.ReadmeName = name
			return err
		}
	}
	return nil
}

// content returns an object, or nil if it is missing, of another kind or larger than maxShown.
func (o objects) content(name, kind string) ([]byte, error) {
	size, err := o.ask("info "+name, kind)
	if err != nil || size < 0 || size > maxShown {
		return nil, err
	}
	if _, err := o.ask("contents "+name, kind); err != nil {
		return nil, err
	}
	text := make([]byte, size+1) // a newline follows
	_, err = io.ReadFull(o.out, text)
	return text[:size], err
}

// ask writes a command and returns the size of the object, or -1 if it is missing or of another
// kind.
func (o objects) ask(command, kind string) (size int, err error) {
	if _, err := io.WriteString(o.in, command+"\n"); err != nil {
		return -1, err
	}
	line, err := o.out.ReadString('\n')
	if err != nil {
		return -1, err
	}
	if fields := strings.Fields(line); len(fields) == 3 && fields[1] == kind {
		return strconv.Atoi(fields[2])
	}
	return -1, nil
}

// parseCommit returns the time and the first line of the message of a commit.
func parseCommit(text string) (at time.Time, subject string) {
	header, message, _ := strings.Cut(text, "\n\n")
	_, committer, _ := strings.Cut("\n"+header, "\ncommitter ")
	committer, _, _ = strings.Cut(committer, "\n")
	if fields := strings.Fields(committer); len(fields) > 1 {
		if seconds, err := strconv.ParseInt(fields[len(fields)-2], 10, 64); err == nil {
			at = time.Unix(seconds, 0)
		}
	}
	subject, _, _ = strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	return at, subject
}
