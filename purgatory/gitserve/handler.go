package gitserve

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// Handler serves repositories. Make one with [New].
type Handler struct {
	repos    *Repositories
	auth     Authority
	cfg      Config
	git      *program
	disk     *storage
	pushes   *requests
	fetches  *requests
	pages    *requests // for pages of repositories
	asks     *requests // for lists of refs, which precede each fetch and push
	kept     *slots    // one per 8 MiB of pushes that are on disk and not yet in git
	staging  *slots    // git processes that index uploads for unknown events
	settling *slots    // completed pushes that wait until their events are served
	tasks    *tasks
	log      *requestLog
	locks    atomic.Int64 // nanoseconds that pushes waited for locks of repositories
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
	asks := max(1, min((cfg.MaxFetches+1)/2, int(repos.git.memory.Asks/gitrun.AskMemory)))
	return &Handler{
		repos: repos, auth: authority, cfg: cfg, git: repos.git, tasks: newTasks(), log: newRequestLog(cfg.Logger),
		disk:   &storage{layout: repos.layout, free: disk.Free, least: cfg.MinFreeDisk},
		pushes: newRequests(cfg, cfg.MaxPushes, quarter(cfg.MaxPushes)), fetches: newRequests(cfg, cfg.MaxFetches, quarter(cfg.MaxFetches)),
		asks: newRequests(cfg, asks, quarter(asks)), pages: newRequests(cfg, pageSlots, 1),
		kept: newSlots(max(1, int(keptPushes*cfg.MaxPush/roomEvery)), max(1, int(keptPushes*cfg.MaxPush/roomEvery/4))),
		// Every client may push for an unknown event. These pushes have slots of their own.
		staging:  newSlots(max(cfg.MaxPushes/4, min(cfg.MaxPushes, leastStaging)), 1),
		settling: newSlots(cfg.fixed.MaxReaders, cfg.fixed.MaxPerClient),
	}, nil
}

func quarter(total int) int { return (total + 3) / 4 }

// keptPushes times [Config.MaxPush] is the maximum disk space of all pushes that git has not yet
// received.
const keptPushes = 16

// leastStaging is the minimum number of slots for indexing staged packs, unless MaxPushes is lower.
// With fewer slots, one network could use all of them.
const leastStaging = 4

// Close ends all requests and returns after the last child process ended. Later requests are
// refused.
func (h *Handler) Close() { h.tasks.close() }

// Before serves repositories and passes all other requests to next, see [AllowCORS]. It needs
// paths as clients sent them, so it must not be behind an [http.ServeMux], which changes some
// paths.
func (h *Handler) Before(next http.Handler) http.Handler {
	return AllowCORS(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := parsePath(r.URL); ok {
			h.serve(w, r)
			return
		}
		next.ServeHTTP(w, r) // includes misspelled repository paths
	}))
}

// AllowCORS adds the CORS headers that GRASP-01 requires to each answer of next. Clients that send
// or accept JSON get errors as JSON. AllowCORS answers preflight requests itself, because khatru
// would allow only the requested method.
func AllowCORS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if everywhere(w); r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if strings.Contains(r.Header.Get("Accept")+r.Header.Get("Content-Type"), "json") {
			w = &jsonErrors{ResponseWriter: w}
		}
		next.ServeHTTP(w, r)
	})
}

// everywhere sets the CORS headers.
func everywhere(w http.ResponseWriter) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST") // HEAD is always allowed
	w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Authorization, Git-Protocol")
	w.Header().Set("Access-Control-Expose-Headers", "WWW-Authenticate")
}

// Services of the smart protocol.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

const lfs = "info/lfs/"

const noLFS = "Git LFS is not served here: name another LFS server in .lfsconfig (lfs.url), or commit the files themselves (git lfs migrate export)"

// jsonErrors converts error answers of type text/* to JSON messages.
type jsonErrors struct {
	http.ResponseWriter
	status int // set for errors only
	told   bool
}

// Unwrap supports [http.ResponseController].
func (j *jsonErrors) Unwrap() http.ResponseWriter { return j.ResponseWriter }

func (j *jsonErrors) WriteHeader(status int) {
	if status >= http.StatusBadRequest && strings.HasPrefix(j.Header().Get("Content-Type"), "text/") {
		j.status = status
		j.Header().Set("Content-Type", "application/json")
		j.Header().Del("Content-Length")
	}
	j.ResponseWriter.WriteHeader(status)
}

func (j *jsonErrors) Write(p []byte) (int, error) {
	if j.status == 0 {
		return j.ResponseWriter.Write(p)
	}
	if !j.told {
		j.told = true
		text := strings.TrimSpace(string(p))
		if strings.HasPrefix(text, "<") {
			text = http.StatusText(j.status)
		}
		writeMessage(j.ResponseWriter, text)
	}
	return len(p), nil
}

func writeMessage(w io.Writer, text string) {
	_ = json.NewEncoder(w).Encode(map[string]string{"message": text}) // fails only if the client disconnected
}

// parsePath reads /<npub>/<identifier>.git and the rest of the path without a slash. It decodes
// each part separately, because an encoded slash belongs to the identifier.
func parsePath(u *url.URL) (ref graspsync.RepoRef, rest string, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(u.EscapedPath(), "/"), "/", 3)
	if len(parts) < 2 || !strings.HasPrefix(parts[0], "npub1") {
		return ref, "", false
	}
	name, err := url.PathUnescape(parts[1])
	identifier, dotted := strings.CutSuffix(name, ".git")
	if err != nil || !dotted || graspsync.CheckIdentifier(identifier) != nil {
		return ref, "", false
	}
	prefix, key, err := nip19.Decode(parts[0])
	hex, isText := key.(string)
	if err != nil || prefix != "npub" || !isText {
		return ref, "", false
	}
	owner, err := graspsync.ParsePubKey(hex)
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
	AllowCORS(http.HandlerFunc(h.serve)).ServeHTTP(w, r)
}

// serve answers all requests but preflight requests.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	ref, rest, ok := parsePath(r.URL)
	if ok && strings.HasPrefix(rest+"/", lfs) {
		w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
		w.WriteHeader(http.StatusNotImplemented)
		writeMessage(w, noLFS)
		return
	}
	service, method := rest, http.MethodPost
	if rest == "info/refs" {
		service, method = r.URL.Query().Get("service"), http.MethodGet
	}
	isPage := ok && rest == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	if isPage {
		method = http.MethodGet
	}
	if !ok || !isPage && service != uploadPack && service != receivePack {
		http.Error(w, "not found: only the smart git protocol is supported", http.StatusNotFound)
		return
	}
	if r.Method != method && (r.Method != http.MethodHead || method != http.MethodGet) {
		w.Header().Set("Allow", method)
		http.Error(w, "wrong method", http.StatusMethodNotAllowed)
		return
	}
	ctx, leave, ok := h.tasks.begin(r.Context())
	if !ok {
		http.Error(w, "closing", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	of, most := h.asks, answerTimeouts*h.cfg.fixed.Timeout
	switch {
	case isPage:
		of = h.pages
	case method == http.MethodGet:
	case service == receivePack:
		of, most = h.pushes, h.cfg.fixed.Timeout
	default:
		of = h.fetches
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	ctx, t, end, err := of.begin(ctx, clientNamed(h.cfg.Client(r)), h.cfg.fixed.Wait)
	if err != nil {
		busy(w)
		return
	}
	defer end()
	dir, done, err := h.use(ctx, ref) // keeps the repository from being removed
	if isPage && errors.Is(err, purgatory.ErrNoRepository) {
		h.cfg.Pages.Missing(w, r)
		return
	}
	if err != nil {
		h.fail(w, ref, err)
		return
	}
	defer done()
	c := http.NewResponseController(w)
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // the next request of the connection sets its own deadline
	out := &patient{ResponseWriter: w, c: c, patience: h.cfg.patience(t, writeWindows, time.Time{})}
	switch {
	case isPage:
		h.page(ctx, out, t, r, ref, dir)
	case method == http.MethodGet:
		c := call{
			dir: dir, args: []string{strings.TrimPrefix(service, "git-"), "--http-backend-info-refs"},
			kind: "application/x-" + service + "-advertisement", protocol: protocolOf(r),
		}
		if c.protocol != "version=2" {
			c.prefix = pktLine("# service="+service+"\n") + flushPacket
		}
		h.answer(ctx, out, t, ref, h.asks, c)
	case service == uploadPack:
		h.fetch(ctx, out, r, t, ref, dir)
	default:
		h.push(ctx, out, r, &push{ref: ref, dir: dir, transfer: t})
	}
}

// answerTimeouts times Timeout is the maximum time of an answer to a fetch. The repository cannot
// be removed during that time.
const answerTimeouts = 8

// use is [Repositories.use] with a maximum wait of Wait.
func (h *Handler) use(ctx context.Context, ref graspsync.RepoRef) (dir string, done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.fixed.Wait, errBusy)
	defer cancel()
	return h.repos.use(ctx, ref)
}

// fail answers a failed request. Nothing may have been written before.
func (h *Handler) fail(w http.ResponseWriter, ref graspsync.RepoRef, err error) {
	status, text := h.problem(ref, err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "30")
	}
	http.Error(w, text, status)
}

// problem returns the status and message for an error. It logs internal errors, and limits that
// honest requests may exceed.
func (h *Handler) problem(ref graspsync.RepoRef, err error) (status int, text string) {
	var (
		limit *limitError
		full  fullError
		fault *faultError
	)
	switch {
	case errors.Is(err, errRequest):
		return http.StatusForbidden, graspsync.Printable(err.Error())
	case errors.Is(err, errBusy):
		return http.StatusServiceUnavailable, graspsync.Printable(err.Error())
	case errors.Is(err, purgatory.ErrNoRepository):
		return http.StatusNotFound, "no such repository: an announcement that lists this server comes first"
	case errors.Is(err, errEncoding):
		return http.StatusUnsupportedMediaType, err.Error()
	case errors.Is(err, errBody), errors.Is(err, io.ErrUnexpectedEOF):
		return http.StatusBadRequest, "the request could not be read"
	case errors.Is(err, context.DeadlineExceeded):
		err = &limitError{fmt.Sprintf("the request took more than %v", h.cfg.fixed.Timeout)}
	}
	if errors.As(err, &fault) {
		h.log.seldom(slog.LevelInfo, ref, "push refused", err)
		return http.StatusForbidden, fault.why
	}
	h.log.failed(ref, err)
	switch {
	case errors.As(err, &limit):
		return http.StatusRequestEntityTooLarge, limit.Error()
	case errors.As(err, &full):
		return http.StatusInsufficientStorage, full.Error()
	}
	return http.StatusInternalServerError, "internal error"
}

// protocolOf returns the protocol version that a client requests. Unknown values never reach git.
func protocolOf(r *http.Request) string {
	for p := range strings.SplitSeq(r.Header.Get("Git-Protocol"), ":") {
		if p == "version=2" || p == "version=1" {
			return p
		}
	}
	return ""
}

func (h *Handler) fetch(ctx context.Context, w http.ResponseWriter, r *http.Request, t *transfer, ref graspsync.RepoRef, dir string) {
	body, err := h.open(w, r, t, h.cfg.fixed.MaxAsk, time.Now().Add(h.cfg.fixed.Timeout))
	if err != nil {
		h.fail(w, ref, err)
		return
	}
	defer body.close()
	if err := body.readAll(); err != nil {
		h.fail(w, ref, err)
		return
	}
	of := h.fetches
	if body.begins(listsRefs) {
		of = h.asks
	}
	h.answer(ctx, w, t, ref, of, call{
		dir: dir, args: []string{"upload-pack", "--stateless-rpc"}, kind: "application/x-git-upload-pack-result",
		protocol: protocolOf(r), body: body.file,
	})
}

// listsRefs is the start of a protocol version 2 request for refs.
const listsRefs = "0014command=ls-refs"

// answer runs git to answer a request. Git blocks while the client is slow to read.
func (h *Handler) answer(ctx context.Context, w http.ResponseWriter, t *transfer, ref graspsync.RepoRef, of *requests, c call) {
	process, err := of.processes.acquire(ctx, t.who, h.cfg.fixed.Wait)
	if err != nil {
		busy(w)
		return
	}
	defer t.hold(process)()
	c.memory = gitrun.AskMemory - besides/2
	if of == h.fetches {
		info, err := c.body.Stat()
		if err != nil {
			h.fail(w, ref, fmt.Errorf("reading a request: %w", err))
			return
		}
		var all int64
		all, c.memory = h.git.fetchMemory(c.dir, info.Size())
		memory, err := h.takeMemory(ctx, t.who, all)
		if err != nil {
			h.fail(w, ref, err)
			return
		}
		defer t.hold(memory)()
	}
	c.cpu = h.cfg.fixed.Timeout // git has read only the request of the client
	if !h.advertise(w, ref, c) {
		h.run(ctx, w, ref, c)
	}
}

// advertise writes the refs for a client that wants to push, as git receive-pack does. It returns
// false for other requests, and if only git can read the refs.
func (h *Handler) advertise(w http.ResponseWriter, ref graspsync.RepoRef, c call) bool {
	if c.args[0] != "receive-pack" {
		return false
	}
	refs, format, err := h.repos.refs(h.repos.at(ref))
	if err != nil {
		return false
	}
	noCache(w.Header(), c.kind)
	_ = writeRefs(w, c.prefix, c.protocol, refs, format) // fails only if the client disconnected
	return true
}

// push reads a push, judges it, applies the allowed commands, and reports the result of each ref.
// After the client has announced that it reads a report, errors are sent as reports, because git
// shows no text of an HTTP error.
func (h *Handler) push(ctx context.Context, w *patient, r *http.Request, p *push) {
	var err error
	if p.body, err = h.open(w, r, p.transfer, h.cfg.MaxPush, time.Now().Add(h.cfg.fixed.CommandTime)); err != nil {
		h.fail(w, p.ref, err)
		return
	}
	defer p.body.close()
	p.req, err = readRequest(p.body, h.cfg.fixed.MaxCommands, maxCommandBytes)
	switch {
	case len(p.req.commands) > 0 && err == nil:
		p.alive = func() {
			if p.req.report && p.req.sideband {
				beginReport(w)
				_, _ = flusher{w, w.c}.Write([]byte(stillHere)) // fails only if the client disconnected
			}
		}
		err = h.take(ctx, p)
	case err == nil: // an empty request, with which git checks for permission
		err = p.body.skip(p.body.from, 0, time.Now().Add(h.cfg.fixed.CommandTime))
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

// stillHere is an empty sideband packet of the progress band.
const stillHere = "0005\x02"

func beginReport(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
}

// report sends the result of each ref to the client of a push. err is the reason for commands
// without a reason. It first reads the rest of the body, because clients read only after they sent
// everything. It skips at most the size that all pushes together may have, and unpacks nothing.
func (h *Handler) report(ctx context.Context, w *patient, p *push, err error) {
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
	_ = p.body.skip(p.body.sent, keptPushes*h.cfg.MaxPush, end)                       // fails if the client disconnected
	w.patience.transfer, w.patience.end = nil, time.Now().Add(h.cfg.fixed.RateWindow) // applies also if the request must end
	if !p.req.report && !p.req.sideband && p.req.over() {
		http.Error(w, p.req.commands[0].name+": "+p.req.commands[0].reason, status)
		return
	}
	beginReport(w)
	_ = writeReport(w, p.req, problem, p.notes...) // fails only if the client disconnected
}

// turnWaits times Wait is the maximum time that a push that was read waits for its turn.
const turnWaits = 6

// turn waits for the lock of the repository and for a git slot. It never holds one of them while it
// waits for the other. Only one push per repository waits for either, so a locked repository does
// not block pushes to other repositories.
func (h *Handler) turn(ctx context.Context, who limit.Stranger, ref graspsync.RepoRef) (done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnWaits*h.cfg.fixed.Wait, fmt.Errorf("%w: no slot in time", errBusy))
	defer cancel()
	began := time.Now()
	next, err := h.repos.queue(ctx, ref, who)
	h.locks.Add(int64(time.Since(began)))
	if err != nil {
		return nil, err
	}
	for {
		began = time.Now()
		_, unlock, err := h.repos.Lock(ctx, ref)
		h.locks.Add(int64(time.Since(began)))
		if err != nil {
			next()
			return nil, err
		}
		process := h.pushes.processes.TryAcquire(who, 1)
		if process != nil {
			return sync.OnceFunc(func() { unlock(); process.Release(); next() }), nil
		}
		unlock()
		if process, err = h.pushes.processes.acquire(ctx, who, h.cfg.fixed.Wait); err != nil {
			next()
			return nil, err
		}
		unlock, ok, err := h.repos.tryLock(ref)
		if ok {
			return sync.OnceFunc(func() { unlock(); process.Release(); next() }), nil
		}
		process.Release()
		if err != nil {
			next()
			return nil, err
		}
	}
}

// takeMemory waits for memory for git children. The error wraps errBusy after Wait.
func (h *Handler) takeMemory(ctx context.Context, who limit.Stranger, bytes int64) (*limit.Slot, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.fixed.Wait)
	defer cancel()
	slot, err := h.git.memory.Acquire(ctx, who, bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: waiting for memory to run git: %w", errBusy, err)
	}
	return slot, nil
}

// maxCommandBytes is the maximum size of the part of a push before the pack.
const maxCommandBytes = 4 << 20

func (h *Handler) pushed(ctx context.Context, ref graspsync.RepoRef, names []nip34.RefName) {
	// The push is stored even if the client disconnected.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := h.auth.AfterPush(ctx, ref, names); err != nil {
		h.cfg.Logger.Error("reporting a push failed", "repo", graspsync.Printable(ref.String()), "error", err)
	}
}

func (h *Handler) run(ctx context.Context, w http.ResponseWriter, ref graspsync.RepoRef, c call) {
	begun, err := h.git.serve(ctx, w, c)
	var fault *faultError
	switch {
	case errors.As(err, &fault):
		writeLine(w, "ERR "+fault.why) // git shows it as "remote error" and stops reading
		h.log.fetchRefused(ref, fault)
	case err != nil && !begun:
		h.fail(w, ref, err)
	case err != nil && ctx.Err() == nil:
		if c.body != nil {
			writeLine(w, "\x03the server could not send all data: git failed or ran out of memory\n") // in the error band
		}
		h.log.failed(ref, err)
	}
}

// finishTime is the time that git has to complete a push during shutdown. Killing git while it
// moves refs would leave some of them unmoved.
const finishTime = 5 * time.Second

// toItsEnd returns a context for work that continues after the client disconnected.
func (h *Handler) toItsEnd(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.fixed.Timeout)
	over := ctx.Done()
	ours := context.AfterFunc(h.tasks.ctx, func() {
		select {
		case <-time.After(finishTime):
			cancel()
		case <-over:
		}
	})
	return ctx, func() { ours(); cancel() }
}

func (h *Handler) refs(ref graspsync.RepoRef, commands []*command) (map[nip34.RefName]nip34.ObjectID, error) {
	now, err := barerepo.Refs(h.repos.root, filepath.FromSlash(h.repos.at(ref)), names(commands))
	if err != nil {
		return nil, fmt.Errorf("reading refs: %w", err)
	}
	return now, nil
}

// settled waits until the events that wait for a push are served, and calls alive periodically. The
// push gives up its slot of an open request before. If too many pushes wait, in total or by this
// client, settled returns immediately.
func (h *Handler) settled(ctx context.Context, t *transfer, ref graspsync.RepoRef, alive func()) {
	slot := h.settling.TryAcquire(t.who, 1)
	if slot == nil {
		return
	}
	defer slot.Release()
	t.close()
	ctx, cancel := context.WithTimeout(ctx, settledMost)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.auth.AwaitServed(ctx, ref) }()
	tick := time.NewTicker(aliveEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				h.log.seldom(slog.LevelWarn, ref, "push answered before its events were served", err)
			}
			return
		case <-tick.C:
			alive()
		}
	}
}

const (
	// settledMost is the maximum time that settled waits. Most events are served within a second.
	// Clients do not wait for events that a relay cannot store.
	settledMost = 30 * time.Second
	// aliveEvery is the interval of progress packets. Some clients give up after 10 seconds without
	// data.
	aliveEvery = 5 * time.Second
)

// forEvents reports whether all changes of commands are to refs of events. The branches and tags
// among them have the new value already. It does not take the lock.
func (h *Handler) forEvents(ref graspsync.RepoRef, commands []*command) (bool, error) {
	now, err := h.refs(ref, commands)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(commands, func(c *command) bool {
		_, ok := eventOf(c.ref)
		return !ok && now[c.ref] != c.new
	}), nil
}

// open prepares to read a body of at most most bytes, uncompressed, until end.
func (h *Handler) open(w http.ResponseWriter, r *http.Request, t *transfer, most int64, end time.Time) (*body, error) {
	wire, wait := http.NewResponseController(w), h.cfg.patience(t, 1, end)
	var sent io.Reader = &patientBody{Reader: r.Body, c: wire, patience: &wait}
	from := sent
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip", "x-gzip":
		unpacked, err := gzip.NewReader(sent)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBody, err)
		}
		from = unpacked
	default:
		w.Header().Set("Accept-Encoding", "gzip")
		return nil, errEncoding
	}
	file, err := h.disk.scratch()
	if err != nil {
		return nil, fmt.Errorf("saving a request: %w", err)
	}
	return &body{file: file, sent: sent, from: from, wire: wire, wait: &wait, most: most, max: most}, nil
}
