package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// Pages answers GET and HEAD requests of browsers. Its methods may be called concurrently.
type Pages interface {
	// Repository answers a request for the URL of a repository.
	Repository(w http.ResponseWriter, r *http.Request, v View)
	// Missing answers a request for the URL of an unknown repository.
	Missing(w http.ResponseWriter, r *http.Request)
}

// View is the content of a page. Its texts come from clients and are not escaped.
type View struct {
	Ref  graspsync.RepoRef
	Refs map[string]nip34.ObjectID
	// HEAD is the full name of the default branch, or "". The fields below are empty without it, if
	// git failed, or if the object is larger than 256 KiB.
	HEAD string
	// Changed is the committer time of the newest commit of HEAD, Subject the first line of its
	// message.
	Changed    time.Time
	Subject    string
	Readme     []byte
	ReadmeName string
}

const (
	pageSlots = 2         // pages that are read and rendered concurrently, one for each client
	maxShown  = 256 << 10 // bytes of a commit or a file
)

var readmes = []string{"README.md", "readme.md", "Readme.md", "README.markdown", "README", "README.txt", "README.rst", "README.adoc", "README.org"}

type plain struct{}

func (plain) Repository(w http.ResponseWriter, _ *http.Request, _ View) {
	fmt.Fprintln(w, "a git repository: clone it from this URL")
}

func (plain) Missing(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// rendered releases the slot of a page when its answer begins, because a client may read slowly.
type rendered struct {
	http.ResponseWriter
	slot *limit.Slot
}

func (r rendered) WriteHeader(status int) {
	r.slot.Release()
	r.ResponseWriter.WriteHeader(status)
}

// Page returns a handler that renders a page with next in the slots of all pages. Use it for every
// page of the server.
func (h *Handler) Page(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.limited(w, r, h.pages, func(ctx context.Context, w *clientWriter, t *transfer) {
			h.page(ctx, w, t, func(w http.ResponseWriter) { next.ServeHTTP(w, r) })
		})
	})
}

// page calls render in a slot of pages, because rendering takes as much time as git.
func (h *Handler) page(ctx context.Context, w *clientWriter, t *transfer, render func(http.ResponseWriter)) {
	process, err := h.pages.processes.acquire(ctx, t.who, 1)
	if err != nil {
		busy(w)
		return
	}
	defer process.Release() // released by defer too, because render may panic
	render(rendered{w, process})
}

// repositoryPage serves the page of a repository. dir is "" if there is none.
func (h *Handler) repositoryPage(ctx context.Context, w *clientWriter, r *http.Request, t *transfer, ref graspsync.RepoRef, dir string) {
	h.page(ctx, w, t, func(w http.ResponseWriter) {
		v := View{Ref: ref}
		var err error
		switch v.Refs, v.HEAD, err = h.repos.shown(h.repos.at(ref)); {
		case dir == "" || errors.Is(err, fs.ErrNotExist):
			h.cfg.Pages.Missing(w, r)
			return
		case err != nil:
			h.fail(w, ref, err)
			return
		}
		if tip, ok := v.Refs[v.HEAD]; ok {
			if err := h.read(ctx, t, dir, tip.String(), &v); err != nil {
				h.log.failed(ref, err) // the page is served without them
			}
		}
		h.cfg.Pages.Repository(w, r, v)
	})
}

func (h *Handler) read(ctx context.Context, t *transfer, dir, tip string, v *View) error {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.fixed.View)
	defer cancel()
	count, _ := gitrun.Packs(dir)
	bytes := min(2*gitrun.AskMemory+28*count, h.git.Memory.Part) // git maps the index of a pack
	memory, err := h.takeMemory(ctx, t.who, bytes)
	if err != nil {
		return err
	}
	defer memory.Release()
	ask := func(stdin string, args ...string) (string, error) {
		var out strings.Builder
		err := h.git.Run(ctx, gitrun.Child{
			Dir: dir, Args: args, Stdin: strings.NewReader(stdin), Stdout: &out, Nice: true,
			Limits: gitrun.Limits{Memory: bytes - helperMemory/2, CPU: h.cfg.fixed.View, File: 1},
		})
		return out.String(), err
	}
	commit, err := ask(tip+"\n", "rev-list", "--max-count=1", "--no-commit-header", "--format=%ct%n%s", "--stdin")
	if err != nil {
		return err
	}
	at, subject, _ := strings.Cut(commit, "\n")
	if seconds, err := strconv.ParseInt(at, 10, 64); err == nil {
		v.Changed, v.Subject = time.Unix(seconds, 0), strings.TrimSuffix(subject, "\n")
	}
	name := func(file string) string { return tip + ":" + file + "\n" }
	var names strings.Builder
	for _, file := range readmes {
		names.WriteString(name(file))
	}
	sizes, err := ask(names.String(), "cat-file", "--batch-check=%(objecttype) %(objectsize)")
	if err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimSpace(sizes), "\n") {
		kind, digits, _ := strings.Cut(line, " ")
		if n, err := strconv.Atoi(digits); err != nil || n > maxShown || kind != "blob" {
			continue // missing, large, or a folder
		}
		text, err := ask(name(readmes[i]), "cat-file", "--batch=") // between two newlines
		v.Readme, v.ReadmeName = []byte(strings.TrimSuffix(strings.TrimPrefix(text, "\n"), "\n")), readmes[i]
		return err
	}
	return nil
}
