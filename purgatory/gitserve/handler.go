package gitserve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/pktline"
)

// Handler serves repositories. Make one with [New].
type Handler struct {
	repos   *Repositories
	auth    Authority
	cfg     Config
	git     *gitrun.Program
	free    func(dir string) (uint64, error) // of the disk
	pushes  *requests
	fetches *requests
	pages   *requests
	asks    *requests // for lists of refs, which precede each fetch and push
	kept    *slots    // bytes of pushes that are on disk and not yet in git
	tasks   *tasks
	log     *requestLog
	waited  atomic.Int64 // nanoseconds that pushes waited for their turns
}

// New returns a Handler. The error wraps [ErrConfig] and names every invalid argument.
func New(repos *Repositories, authority Authority, cfg Config) (*Handler, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	if repos == nil {
		errs = append(errs, errors.New("repos is nil"))
	}
	if authority == nil {
		errs = append(errs, errors.New("authority is nil"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	asks := max(1, min((cfg.MaxFetches+1)/2, int(repos.git.Memory.Asks/gitrun.AskMemory)))
	kept := keptPushes * cfg.MaxPush
	return &Handler{
		repos: repos, auth: authority, cfg: cfg, git: repos.git, tasks: newTasks(), log: newRequestLog(cfg.Logger), free: disk.Free,
		pushes:  newRequests(cfg.fixed, cfg.MaxPushes, quarter(cfg.MaxPushes)),
		fetches: newRequests(cfg.fixed, cfg.MaxFetches, quarter(cfg.MaxFetches)),
		asks:    newRequests(cfg.fixed, asks, quarter(asks)),
		pages:   newRequests(cfg.fixed, pageSlots, 1),
		kept:    &slots{Slots: limit.NewSlots(max(roomEvery, kept), max(roomEvery, kept/4)), wait: cfg.fixed.Wait},
	}, nil
}

func quarter(total int) int { return (total + 3) / 4 }

// keptPushes times MaxPush is the maximum disk space of all pushes before git receives them.
const keptPushes = 16

// Close ends all requests, waits for their child processes, and refuses later requests.
func (h *Handler) Close() { h.tasks.close() }

// Middleware serves repositories and passes other requests to next, with [AllowCORS]. An
// [http.ServeMux] before it would change some paths.
func (h *Handler) Middleware(next http.Handler) http.Handler {
	return AllowCORS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := parsePath(r.URL); ok {
			h.route(w, r)
			return
		}
		next.ServeHTTP(w, r) // includes misspelled repository paths
	}))
}

// AllowCORS adds the CORS headers of GRASP-01 to each answer of next, and answers preflight
// requests, because khatru would allow only the requested method.
func AllowCORS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if everywhere(w); r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func everywhere(w http.ResponseWriter) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST") // HEAD is always allowed
	w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Authorization, Git-Protocol")
	w.Header().Set("Access-Control-Expose-Headers", "WWW-Authenticate")
}

const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

const lfs = "info/lfs/"

const noLFS = "Git LFS is not served here: name another LFS server in .lfsconfig (lfs.url), or commit the files themselves (git lfs migrate export)"

// parsePath reads /<npub>/<identifier>.git and the rest of the path. An encoded slash belongs to
// the identifier.
func parsePath(u *url.URL) (ref graspsync.RepoRef, rest string, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(u.EscapedPath(), "/"), "/", 3)
	if len(parts) < 2 {
		return ref, "", false
	}
	name, err := url.PathUnescape(parts[1])
	identifier, dotted := strings.CutSuffix(name, ".git")
	if err != nil || !dotted || graspsync.CheckIdentifier(identifier) != nil {
		return ref, "", false
	}
	owner, err := nip34.ParsePubKey(parts[0])
	if err != nil || nip34.NPub(owner) != parts[0] {
		return ref, "", false
	}
	if len(parts) == 3 {
		rest = parts[2]
	}
	return graspsync.RepoRef{Owner: owner, Identifier: identifier}, rest, true
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	AllowCORS(http.HandlerFunc(h.route)).ServeHTTP(w, r)
}

func (h *Handler) route(w http.ResponseWriter, r *http.Request) {
	ref, rest, ok := parsePath(r.URL)
	if ok && strings.HasPrefix(rest+"/", lfs) {
		w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
		w.WriteHeader(http.StatusNotImplemented)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": noLFS}) // fails only if the client disconnected
		return
	}
	service, method, of, answer := rest, http.MethodPost, h.fetches, h.fetch
	isPage := ok && rest == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	switch {
	case isPage:
		service, method, of, answer = uploadPack, http.MethodGet, h.pages, h.repositoryPage
	case rest == "info/refs":
		service, method, of, answer = r.URL.Query().Get("service"), http.MethodGet, h.asks, h.listRefs
	case rest == receivePack:
		of, answer = h.pushes, h.push
	}
	if !ok || service != uploadPack && service != receivePack {
		http.Error(w, "not found: only the smart git protocol is supported", http.StatusNotFound)
		return
	}
	if r.Method != method && (r.Method != http.MethodHead || method != http.MethodGet) {
		w.Header().Set("Allow", method)
		http.Error(w, "wrong method", http.StatusMethodNotAllowed)
		return
	}
	h.limited(w, r, of, func(ctx context.Context, w *clientWriter, t *transfer) {
		dir, err := h.repos.existing(ref)
		if err != nil && !(isPage && errors.Is(err, purgatory.ErrNoRepository)) {
			h.fail(w, ref, err)
			return
		}
		answer(ctx, w, r, t, ref, dir)
	})
}

func (h *Handler) limited(w http.ResponseWriter, r *http.Request, of *requests, do func(ctx context.Context, w *clientWriter, t *transfer)) {
	ctx, leave, ok := h.tasks.begin(r.Context())
	if !ok {
		http.Error(w, "closing", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	n := h.cfg.fixed
	most := answerTimeouts * n.Timeout
	if of == h.pushes {
		most = n.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	ctx, t, end, err := of.begin(ctx, clientNamed(h.cfg.Client(r)))
	if err != nil {
		busy(w)
		return
	}
	defer end()
	c := http.NewResponseController(w)
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // the next request of the connection sets its own deadline
	do(ctx, &clientWriter{w, c, stream{transfer: t, setDeadline: c.SetWriteDeadline, idle: writeWindows * n.RateWindow}}, t)
}

const answerTimeouts = 8

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "30")
	http.Error(w, errBusy.Error(), http.StatusServiceUnavailable)
}

func (h *Handler) fail(w http.ResponseWriter, ref graspsync.RepoRef, err error) {
	status, text := h.problem(ref, err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "30")
	}
	http.Error(w, text, status)
}

// problem also logs the error unless the client is at fault.
func (h *Handler) problem(ref graspsync.RepoRef, err error) (status int, text string) {
	switch {
	case errors.Is(err, errRequest):
		return http.StatusForbidden, graspsync.Printable(err.Error())
	case errors.Is(err, errBusy):
		return http.StatusServiceUnavailable, graspsync.Printable(err.Error())
	case errors.Is(err, purgatory.ErrNoRepository):
		return http.StatusNotFound, "no such repository: an announcement that lists this server comes first"
	case errors.Is(err, errBody), errors.Is(err, io.ErrUnexpectedEOF):
		return http.StatusBadRequest, "the request could not be read"
	case errors.Is(err, context.DeadlineExceeded):
		err = limitError("the request took more than %v", h.cfg.fixed.Timeout)
	}
	var r *refusal
	switch {
	case !errors.As(err, &r):
		r = &refusal{status: http.StatusInternalServerError, text: "internal error"}
	case r.status == http.StatusForbidden:
		h.log.seldom(slog.LevelInfo, ref, "push refused", err)
		return r.status, r.text
	}
	h.log.failed(ref, err)
	return r.status, r.text
}

// protocolOf returns the requested protocol version. Unknown values never reach git.
func protocolOf(r *http.Request) string {
	for p := range strings.SplitSeq(r.Header.Get("Git-Protocol"), ":") {
		if p == "version=2" || p == "version=1" {
			return p
		}
	}
	return ""
}

func (h *Handler) listRefs(ctx context.Context, w *clientWriter, r *http.Request, t *transfer, ref graspsync.RepoRef, dir string) {
	if r.URL.Query().Get("service") == receivePack {
		h.answer(ctx, w, t, ref, h.asks, call{})
		return
	}
	c := call{
		dir: dir, args: []string{"upload-pack", "--http-backend-info-refs"},
		kind: "application/x-git-upload-pack-advertisement", protocol: protocolOf(r),
	}
	if c.protocol != "version=2" {
		c.prefix = pktline.Line("# service="+uploadPack+"\n") + pktline.FlushPacket
	}
	h.answer(ctx, w, t, ref, h.asks, c)
}

// advertise lists the refs for a push, as git receive-pack does. After an error nothing is written.
func (h *Handler) advertise(w http.ResponseWriter, dir string) error {
	format, err := barerepo.Format(h.repos.root, dir)
	refs, rerr := barerepo.AllRefs(h.repos.root, dir)
	if err := errors.Join(err, rerr); err != nil {
		return fmt.Errorf("reading refs: %w", err)
	}
	setNoCache(w.Header(), "application/x-git-receive-pack-advertisement")
	out := bufio.NewWriter(w)
	_, _ = out.WriteString(pktline.Line("# service=git-receive-pack\n") + pktline.FlushPacket)
	// libgit2 fails if object-format is the last capability.
	can := "\x00report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta object-format=" + format.String() + " agent=graspsync\n"
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		writeLine(out, refs[name].String()+" "+name+can)
		can = "\n"
	}
	if len(refs) == 0 {
		writeLine(out, barerepo.Null(format)+" capabilities^{}"+can)
	}
	_, _ = out.WriteString(pktline.FlushPacket)
	_ = out.Flush()
	return nil
}

func (h *Handler) fetch(ctx context.Context, w *clientWriter, r *http.Request, t *transfer, ref graspsync.RepoRef, dir string) {
	body, err := h.open(w, r, t, h.cfg.fixed.MaxAsk, time.Now().Add(h.cfg.fixed.Timeout))
	if err == nil {
		defer body.close()
		err = body.readAll()
	}
	if err != nil {
		h.fail(w, ref, err)
		return
	}
	of := h.fetches
	if body.begins(listsRefs) {
		of = h.asks
	}
	h.answer(ctx, w, t, ref, of, call{
		dir: dir, args: []string{"upload-pack", "--stateless-rpc"}, kind: "application/x-git-upload-pack-result",
		protocol: protocolOf(r), body: body,
	})
}

const listsRefs = "0014command=ls-refs"

// answer runs git, which blocks while the client is slow to read. Without arguments in c it lists the
// refs for a push.
func (h *Handler) answer(ctx context.Context, w *clientWriter, t *transfer, ref graspsync.RepoRef, of *requests, c call) {
	process, err := of.processes.acquire(ctx, t.who, 1)
	if err != nil {
		busy(w)
		return
	}
	defer t.hold(process)()
	if c.args == nil {
		if err := h.advertise(w, filepath.FromSlash(h.repos.at(ref))); err != nil {
			h.fail(w, ref, err)
		}
		return
	}
	c.limits = gitrun.Limits{Memory: gitrun.AskMemory - helperMemory/2, CPU: h.cfg.fixed.Timeout} // git has read only the request of the client
	if of == h.fetches {
		var all int64
		all, c.limits.Memory = fetchMemory(h.git.Memory, c.dir, c.body.size)
		memory, err := h.takeMemory(ctx, t.who, all)
		if err != nil {
			h.fail(w, ref, err)
			return
		}
		defer t.hold(memory)()
	}
	begun, err := h.serve(ctx, w, c)
	switch {
	case isRefusal(err, http.StatusForbidden):
		writeLine(w, "ERR "+err.Error()) // git shows it as "remote error" and stops reading
		// No warning, because other servers ask repeatedly until an object is stored.
		h.log.Debug("fetch refused", "repo", graspsync.Printable(ref.String()), "reason", err.Error())
	case err != nil && !begun:
		h.fail(w, ref, err)
	case err != nil && ctx.Err() == nil:
		if c.body != nil {
			writeLine(w, "\x03the server could not send all data: git failed or ran out of memory\n") // in the error band
		}
		h.log.failed(ref, err)
	}
}

// push reads a push, judges it, applies the allowed commands, and reports the result of each ref.
// Errors are reports too, because git shows no text of an HTTP error.
func (h *Handler) push(ctx context.Context, w *clientWriter, r *http.Request, t *transfer, ref graspsync.RepoRef, dir string) {
	p := &push{ref: ref, dir: dir, transfer: t}
	var err error
	if p.body, err = h.open(w, r, p.transfer, h.cfg.MaxPush, time.Now().Add(commandTime)); err != nil {
		h.fail(w, p.ref, err)
		return
	}
	defer p.body.close()
	p.req, err = readRequest(p.body, maxCommands, maxCommandBytes)
	switch {
	case len(p.req.commands) > 0 && err == nil:
		p.alive = func() {
			if p.req.report && p.req.sideband {
				beginReport(w)
				_, _ = io.WriteString(w, stillHere)
				_ = w.FlushError()
			}
		}
		err = h.take(ctx, p)
	case err == nil: // an empty request, with which git checks for permission
		err = p.body.skip(p.body.from, 0, time.Now().Add(commandTime))
	}
	if p.req.hears() {
		h.report(ctx, w, p, err)
		return
	}
	if err != nil {
		h.fail(w, p.ref, err)
		return
	}
	beginReport(w)
}

const stillHere = "0005\x02"

func beginReport(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
}

// report sends the result of each ref. err is the reason for commands without a reason. It first
// reads the rest of the body, because clients read only after they sent everything.
func (h *Handler) report(ctx context.Context, w *clientWriter, p *push, err error) {
	status, problem := http.StatusForbidden, ""
	if err != nil {
		if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) { // the request was ended, or timed out
			err = why
		}
		status, problem = h.problem(p.ref, err)
		p.req.refuse(problem)
	}
	h.log.pushRefused(p.ref, p.who.ID, p.req)
	end, _ := ctx.Deadline()
	_ = p.body.skip(p.body.raw, keptPushes*h.cfg.MaxPush, end) // fails if the client disconnected
	out := w.ResponseWriter                                    // works also if the request must end
	_ = w.c.SetWriteDeadline(time.Now().Add(h.cfg.fixed.RateWindow))
	if !p.req.report && !p.req.sideband && p.req.over() {
		http.Error(out, p.req.commands[0].name+": "+p.req.commands[0].reason, status)
		return
	}
	beginReport(out)
	_ = writeReport(out, p.req, problem, p.notes...)
}

// turnWaits times Wait is the maximum time that a received push waits for its turn.
const turnWaits = 6

// turn waits for the lock of the repository and for a git slot, never for one while it holds the
// other.
func (h *Handler) turn(ctx context.Context, who limit.Stranger, ref graspsync.RepoRef) (done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnWaits*h.cfg.fixed.Wait, fmt.Errorf("%w: no slot in time", errBusy))
	defer cancel()
	began := time.Now()
	defer func() { h.waited.Add(int64(time.Since(began))) }()
	next, err := h.repos.queue(ctx, ref, who)
	if err != nil {
		return nil, err
	}
	for err == nil {
		var process *limit.Slot
		if process, err = h.pushes.processes.acquire(ctx, who, 1); err != nil {
			break
		}
		if unlock, ok := h.repos.locks.TryLock(ref); ok {
			done = sync.OnceFunc(func() { unlock(); process.Release(); next() })
			if _, err = h.repos.existing(ref); err != nil {
				done()
			}
			return done, err
		}
		process.Release()
		var unlock func()
		if unlock, err = h.repos.locks.Lock(ctx, ref); err == nil {
			unlock()
		}
	}
	next()
	return nil, err
}

func (h *Handler) takeMemory(ctx context.Context, who limit.Stranger, bytes int64) (*limit.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.fixed.Wait)
	defer cancel()
	slot, err := h.git.Memory.Acquire(ctx, who, bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: waiting for memory to run git: %w", errBusy, err)
	}
	return slot, nil
}

const (
	maxCommands     = 10_000 // refs
	maxCommandBytes = 4 << 20
	commandTime     = 30 * time.Second
)

// settled waits until the events that wait for a push are served, or until other requests wait for
// its slot.
func (h *Handler) settled(ctx context.Context, p *push) {
	_ = p.setQueued(true) // then ctx ends
	ctx, cancel := context.WithTimeout(ctx, settledMost)
	defer cancel()
	if err := h.auth.WaitServed(ctx, p.ref); err != nil && !errors.Is(err, context.Canceled) {
		h.log.seldom(slog.LevelWarn, p.ref, "push answered before its events were served", err)
	}
}

func (p *push) keepAlive() (stop func()) {
	ended := make(chan struct{})
	tick := time.NewTicker(aliveEvery)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-tick.C:
				p.alive()
			case <-ended:
				return
			}
		}
	})
	return func() {
		tick.Stop()
		close(ended)
		wg.Wait()
	}
}

const (
	// Most events are served within a second.
	settledMost = 30 * time.Second
	// Some clients give up after 10 s without data.
	aliveEvery = 5 * time.Second
)
