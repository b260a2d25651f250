package gitserve

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr/nip19"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// Handler serves repositories. It is made by [New].
type Handler struct {
	repos    *Repositories
	auth     Authority
	cfg      Config
	git      *program
	disk     *storage
	pushes   lane
	fetches  lane
	asks     lane    // what is here: a fetch or a push comes to nothing without that
	staging  *places // for indexing what is staged
	settling *places // of pushes that are done and wait for their events
	ahead    int64   // how far an answer may be ahead of its client, in bytes
	tasks    *tasks
	failures *failures
	refusals *refusals
	locks    atomic.Int64 // for how long pushes have waited for them
}

// New returns a Handler for repositories. The error wraps [ErrConfig] and names every
// argument that can't be used.
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
	return &Handler{
		repos: repos, auth: authority, cfg: cfg, git: repos.git, tasks: newTasks(), failures: &failures{log: cfg.Logger}, refusals: newRefusals(cfg.Logger),
		disk:   &storage{layout: repos.layout, free: disk.Free, least: cfg.MinFreeDisk},
		pushes: newLane(cfg, cfg.MaxPushes, keptPushes*cfg.MaxPush), fetches: newLane(cfg, cfg.MaxFetches, int64(cfg.fixed.MaxReaders)*cfg.fixed.MaxAsk),
		asks:  newLane(cfg, (cfg.MaxFetches+1)/2, math.MaxInt64),
		ahead: maxAhead,
		// What anybody may push has places of its own, and few: it keeps none from what is authorised.
		staging:  newPlaces(max(cfg.MaxPushes/4, min(cfg.MaxPushes, leastStaging)), 0, 1),
		settling: newPlaces(cfg.fixed.MaxReaders, cfg.fixed.MaxReaders/2, cfg.fixed.MaxPerClient),
	}, nil
}

// keptPushes times [Config.MaxPush] is what all pushes together may take of the disk
// before git has them.
const keptPushes = 16

// leastStaging is how many places there are for indexing what is staged, unless fewer
// pushes are run: of fewer places, none would be left for who comes from somewhere else.
const leastStaging = 4

// Close ends all requests, and returns when no child process is left. Later ones are
// refused.
func (h *Handler) Close() { h.tasks.close() }

// Before serves repositories and has next answer all other requests; see [Everywhere]. It
// must see paths as clients sent them: an [http.ServeMux] before it changes some.
func (h *Handler) Before(next http.Handler) http.Handler {
	return Everywhere(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, ok := parsePath(r.URL); ok {
			h.serve(w, r)
			return
		}
		next.ServeHTTP(w, r) // also for who misspelt the path of a repository
	}))
}

// Everywhere lets pages of all sites ask what next answers: GRASP-01 wants that of each
// answer of a server. What browsers want to know before they ask is answered without next,
// since that may know better: a khatru relay names the one method that was asked for.
func Everywhere(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if everywhere(w); r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// everywhere sets the headers of an answer that pages of all sites may read.
func everywhere(w http.ResponseWriter) {
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST") // HEAD needs no leave
	w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Authorization, Git-Protocol")
	w.Header().Set("Access-Control-Expose-Headers", "WWW-Authenticate")
}

// The services of the smart protocol.
const (
	uploadPack  = "git-upload-pack"
	receivePack = "git-receive-pack"
)

// parsePath reads /<npub>/<identifier>.git and what follows, without a slash. The
// parts are decoded one by one: an encoded slash belongs to the identifier.
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
	Everywhere(http.HandlerFunc(h.serve)).ServeHTTP(w, r)
}

// serve answers what is no question of a browser's for others.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	ref, rest, ok := parsePath(r.URL)
	service, method := rest, http.MethodPost
	if rest == "info/refs" {
		service, method = r.URL.Query().Get("service"), http.MethodGet
	}
	isPage := ok && rest == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
	if isPage {
		method = http.MethodGet
	}
	if !ok || !isPage && service != uploadPack && service != receivePack {
		http.Error(w, "no such thing: git speaks the smart protocol here", http.StatusNotFound)
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
	way := h.asks
	var end time.Time // of an answer there is none, as long as its client takes it
	switch {
	case method == http.MethodGet:
	case service == receivePack:
		way, end = h.pushes, time.Now().Add(h.cfg.fixed.Timeout)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end)
		defer cancel()
	default:
		way = h.fetches
	}
	who := h.party(r, ref)
	ctx, v, depart, err := way.visits.arrive(ctx, who, h.cfg.fixed.Wait)
	if err != nil {
		busy(w)
		return
	}
	defer depart()
	dir, done, err := h.use(ctx, ref) // it must not go while somebody is at it
	if isPage && errors.Is(err, purgatory.ErrNoRepository) {
		_ = WriteMissing(w, Root(r)) // the client is gone if this fails
		return
	}
	if err != nil {
		h.fail(w, ref, err)
		return
	}
	done = sync.OnceFunc(done)
	defer done()
	c := http.NewResponseController(w)
	defer func() { _ = c.SetWriteDeadline(time.Time{}) }() // the next request on it has its own
	pace := h.cfg.taking(v, end)
	w = &patient{ResponseWriter: w, c: c, pace: &pace}
	switch {
	case isPage:
		h.page(ctx, w, v, r, ref)
	case method == http.MethodGet:
		h.answer(ctx, w, v, ref, h.asks, call{
			dir: dir, path: "/info/refs", query: serviceOf(service), method: http.MethodGet, protocol: protocolOf(r),
		}, done)
	case service == uploadPack:
		h.fetch(ctx, w, r, v, ref, dir, done)
	default:
		h.push(ctx, w, r, v, ref, dir)
	}
}

// use is [Repositories.use] for who does not wait for long.
func (h *Handler) use(ctx context.Context, ref graspsync.RepoRef) (dir string, done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.fixed.Wait, errBusy)
	defer cancel()
	return h.repos.use(ctx, ref)
}

// fail answers a request that could not be served, as long as nothing was answered.
func (h *Handler) fail(w http.ResponseWriter, ref graspsync.RepoRef, err error) {
	var limit *limitError
	switch {
	case errors.Is(err, errBusy):
		busy(w)
	case errors.Is(err, purgatory.ErrNoRepository):
		http.Error(w, "no such repository", http.StatusNotFound)
	case errors.As(err, &limit):
		http.Error(w, limit.Error(), http.StatusRequestEntityTooLarge)
	case errors.Is(err, errRequest):
		http.Error(w, err.Error(), http.StatusForbidden)
	case errors.Is(err, errBody), errors.Is(err, io.ErrUnexpectedEOF):
		http.Error(w, "the request could not be read", http.StatusBadRequest)
	case noRoom(err) != "":
		h.failures.warn(ref, err)
		http.Error(w, noRoom(err), http.StatusInsufficientStorage)
	default:
		h.failures.warn(ref, err)
		http.Error(w, "internal error", http.StatusInternalServerError)
	}
}

// protocolOf is what a client wants to speak; only what is known reaches git.
func protocolOf(r *http.Request) string {
	for p := range strings.SplitSeq(r.Header.Get("Git-Protocol"), ":") {
		if p == "version=2" || p == "version=1" {
			return p
		}
	}
	return ""
}

func (h *Handler) fetch(ctx context.Context, w http.ResponseWriter, r *http.Request, v *visit, ref graspsync.RepoRef, dir string, done func()) {
	body, err := h.open(w, r, v, h.cfg.fixed.MaxAsk, h.cfg.fixed.MaxAsk, time.Now().Add(h.cfg.fixed.Timeout))
	if err != nil {
		h.fail(w, ref, err)
		return
	}
	defer body.close()
	if err := body.readAll(); err != nil {
		h.fail(w, ref, err)
		return
	}
	way := h.fetches
	if body.begins(listsRefs) {
		way = h.asks
	}
	h.answer(ctx, w, v, ref, way, call{
		dir: dir, path: "/" + uploadPack, method: http.MethodPost, kind: "application/x-git-upload-pack-request",
		protocol: protocolOf(r), body: body.file,
	}, done)
}

// listsRefs begins the request of protocol version 2 for what is here.
const listsRefs = "0014command=ls-refs"

// answer has git say what a client wants to know. Everybody may ask for that, so who is
// slow to hear it keeps no place, unless it is very much, and the repository is done with
// when git is.
func (h *Handler) answer(ctx context.Context, w http.ResponseWriter, v *visit, ref graspsync.RepoRef, way lane, c call, done func()) {
	leave, err := way.enter(ctx, v, h.cfg.fixed.Wait)
	if err != nil {
		busy(w)
		return
	}
	defer leave()
	out, err := h.disk.newSpool(ctx, w, v, h.ahead, false)
	if err != nil {
		h.fail(w, ref, err)
		return
	}
	defer out.close()
	c.cpu = h.cfg.fixed.Timeout // it has read nothing of a stranger but a question
	ctx, stop := out.whileMoving(ctx, h.cfg.fixed.Timeout)
	if !h.advertise(ctx, out, ref, c) {
		h.run(ctx, out, ref, c)
	}
	stop()
	leave()
	done()
}

// advertise tells who wants to push what is here, as git receive-pack does, unless that was
// not asked for or only git can say. What fails is for git to say as well, and that ctx has ended
// before anything was told.
func (h *Handler) advertise(ctx context.Context, w http.ResponseWriter, ref graspsync.RepoRef, c call) bool {
	if c.query != serviceOf(receivePack) {
		return false
	}
	refs, format, err := h.repos.refs(ctx, h.repos.at(ref))
	if err != nil {
		return false
	}
	noCache(w.Header(), "application/x-git-receive-pack-advertisement")
	if err := writeRefs(untilWriter{ctx, w}, c.protocol, refs, format); err != nil { // the client is gone, or the disk is full
		h.cfg.Logger.Warn("the refs could not be told", "repo", graspsync.Printable(ref.String()), "error", err)
	}
	return true
}

// serviceOf is the query of who asks what a service has.
func serviceOf(service string) string { return "service=" + service }

// maxPackedPush is what a push that comes gzipped may unpack to, in bytes. Git gzips none,
// and other clients only those that they keep in memory: else a few KB would take the room
// of hundreds of MB.
const maxPackedPush = 8 << 20

// push reads what a push wants, judges that, reads the rest, and has git do it when it is
// its turn. That is judged again under the lock: a newer state may have come while the
// pack did.
func (h *Handler) push(ctx context.Context, w http.ResponseWriter, r *http.Request, v *visit, ref graspsync.RepoRef, dir string) {
	body, err := h.open(w, r, v, h.cfg.MaxPush, maxPackedPush, time.Now().Add(h.cfg.fixed.CommandTime))
	if err != nil {
		h.fail(w, ref, err)
		return
	}
	defer body.close()
	req, err := readRequest(body, h.cfg.fixed.MaxCommands, maxCommandBytes)
	switch {
	case err != nil:
		h.fail(w, ref, err)
		return
	case len(req.commands) == 0: // git asks like this whether it may
		h.allow(w, ref, body)
		return
	}
	var l *levy
	said, err := judge(ctx, h.auth, ref, req.commands)
	if err == nil && len(said.refused) == 0 {
		until, _ := ctx.Deadline()
		body.until(until)
		if len(said.unknown) > 0 {
			h.stage(ctx, w, &upload{ref: ref, dir: dir, visit: v, body: body, req: req, said: said})
			return
		}
		var theirs bool
		if theirs, err = h.forEvents(ref, req); err == nil {
			l, err = h.repos.ceiling.begin(ctx, ref, theirs, h.auth.Displaced)
		}
		if err == nil {
			err = h.receive(body, l)
		}
		defer l.end()
	}
	if err != nil || len(said.refused) > 0 {
		h.refuse(w, ref, v.who.client, body, req, said.refused, err)
		return
	}
	out, err := h.disk.newSpool(ctx, w, v, maxReport, true)
	if err != nil {
		h.fail(w, ref, err)
		return
	}
	defer out.close()
	last := &held{ResponseWriter: out}
	defer last.close()
	refused, told, err := h.change(ctx, last, v, ref, req, call{
		dir: dir, path: "/" + receivePack, method: http.MethodPost, kind: "application/x-git-receive-pack-request",
		body: body.file, cpu: pushTime(body.sent()),
	})
	if err != nil || len(refused) > 0 {
		h.refuse(last, ref, v.who.client, body, req, refused, err)
		return
	}
	l.end()
	body.close() // what it takes up is free while the client waits
	if told {
		h.settled(ctx, v, ref, sayAlive(out, req))
	}
}

// allow answers a push that asks for nothing: there is nothing for git to do.
func (h *Handler) allow(w http.ResponseWriter, ref graspsync.RepoRef, body *body) {
	if err := body.skip(0, time.Now().Add(h.cfg.fixed.CommandTime)); err != nil {
		h.fail(w, ref, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
}

// change has git do a push that has come to its end, when it is its turn, unless what it
// wants is not allowed any more. Whatever becomes of it, what it took is free then. told
// reports whether the Authority was told of it.
func (h *Handler) change(ctx context.Context, w http.ResponseWriter, v *visit, ref graspsync.RepoRef, req request, c call) (refused map[nip34.RefName]string, told bool, err error) {
	v.queue()
	done, err := h.turn(ctx, v.who, ref)
	left := v.served() // also at the last moment: nothing was done yet
	if err != nil {
		return nil, false, err
	}
	defer done()
	if left != nil {
		return nil, false, left
	}
	said, err := judge(ctx, h.auth, ref, req.commands)
	for name := range said.unknown { // its event has gone since
		said.refused[name] = refusedMeanwhile
	}
	if err != nil || len(said.refused) > 0 {
		return said.refused, false, err
	}
	now, answered, err := h.moot(w, ref, req)
	if err != nil || answered {
		return nil, false, err
	}
	info, err := c.body.Stat()
	if err != nil {
		return nil, false, fmt.Errorf("reading a request: %w", err)
	}
	if refused, err = ration(ctx, h.auth, ref, c.dir, req.commands, now, info.Size()); err != nil || len(refused) > 0 {
		return refused, false, err
	}
	if err := h.repos.prepare(ref, req, c.body); err != nil {
		return nil, false, err
	}
	h.auth.BeforePush(ref, req.names())
	h.take(ctx, w, ref, c)
	if err := h.repos.settle(ref, req); err != nil {
		h.cfg.Logger.Error("a push may not be on the disk", "repo", graspsync.Printable(ref.String()), "error", err)
	}
	done()
	h.pushed(ctx, ref, req.names()) // however git ended: it may have moved refs before
	return nil, true, nil
}

// pushTime is how much processor time each process of git may have for a push of a size, as
// it was sent: far more than it needs for any honest one, but a few MB may have been made to
// take it minutes, while it has the lock.
func pushTime(size int64) time.Duration { return 20*time.Second + time.Duration(size>>20)*time.Second }

// turnWaits times Wait is how long a push that has been read may wait for its
// turn: what it has sent is worth more than a question.
const turnWaits = 6

// turn waits until it is the turn of a push: until it has a place and the lock of its
// repository. It has neither while it waits for the other one, and of a repository one
// push at a time waits for that: nobody waits because others want what is locked.
func (h *Handler) turn(ctx context.Context, who party, ref graspsync.RepoRef) (done func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnWaits*h.cfg.fixed.Wait, fmt.Errorf("%w: it was never its turn", errBusy))
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
		leave, ok := h.pushes.places.try(who)
		if ok {
			return sync.OnceFunc(func() { unlock(); leave(); next() }), nil
		}
		unlock()
		if leave, err = h.pushes.places.enter(ctx, who, h.cfg.fixed.Wait, nil); err != nil {
			next()
			return nil, fmt.Errorf("%w: %w", errBusy, err)
		}
		unlock, ok, err = h.repos.tryLock(ref)
		if ok {
			return sync.OnceFunc(func() { unlock(); leave(); next() }), nil
		}
		leave()
		if err != nil {
			next()
			return nil, err
		}
	}
}

// maxCommandBytes bounds what comes before the pack of a push.
const maxCommandBytes = 4 << 20

func (h *Handler) pushed(ctx context.Context, ref graspsync.RepoRef, names []nip34.RefName) {
	// The client may be gone; what it pushed is here.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := h.auth.AfterPush(ctx, ref, names); err != nil {
		h.cfg.Logger.Error("a push could not be reported", "repo", graspsync.Printable(ref.String()), "error", err)
	}
}

// refuse tells a client why its push was not done: as git does if it is able to hear
// that.
func (h *Handler) refuse(w http.ResponseWriter, ref graspsync.RepoRef, client string, body *body, req request, refused map[nip34.RefName]string, err error) {
	switch {
	case req.report && noRoom(err) != "":
		refused = make(map[nip34.RefName]string, len(req.commands))
		for _, c := range req.commands {
			refused[c.ref] = noRoom(err)
		}
	case err != nil:
		h.fail(w, ref, err)
		return
	}
	h.refusals.push(ref, client, req, refused)
	if !req.report || body.skip(maxSkipped, time.Now().Add(h.cfg.fixed.CommandTime)) != nil {
		if err != nil {
			h.fail(w, ref, err)
			return
		}
		for name, reason := range refused {
			http.Error(w, name.String()+": "+reason, http.StatusForbidden)
			return
		}
	}
	if err != nil {
		h.failures.warn(ref, err)
	}
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
	_ = writeReport(w, req, refused) // the client is gone if this fails
}

// noRoom is what an error says of room to who pushed; empty if it is about something else.
func noRoom(err error) string {
	switch {
	case errors.Is(err, errOwnerFull):
		return errOwnerFull.Error()
	case errors.Is(err, errPullsFull):
		return errPullsFull.Error()
	case errors.Is(err, errFull):
		return errFull.Error()
	case errors.Is(err, errDisk):
		return refusedDisk
	}
	return ""
}

// maxSkipped is how much of a refused push is read before it is answered: clients only
// listen when they have sent everything.
const maxSkipped = 32 << 20

// run has git answer a request.
func (h *Handler) run(ctx context.Context, w http.ResponseWriter, ref graspsync.RepoRef, c call) (ok bool) {
	serve := h.git.serve
	if c.path == "/"+receivePack {
		serve = h.git.receive
	}
	status, err := serve(ctx, w, c)
	if full := context.Cause(ctx); err != nil && errors.Is(full, errDisk) {
		err = fmt.Errorf("%w (%w)", full, err)
	}
	switch {
	case status == 0:
		h.fail(w, ref, err)
	case err != nil && (ctx.Err() == nil || errors.Is(err, errDisk)):
		h.failures.warn(ref, err)
	}
	return status == http.StatusOK && err == nil
}

// receive reads what is left of a push, as long as there is room for it.
func (h *Handler) receive(body *body, l *levy) error {
	body.room = func() error { return errors.Join(l.charge(body.size()), h.disk.room(0)) }
	if err := body.room(); err != nil {
		return err
	}
	if err := body.readAll(); err != nil {
		return err
	}
	return errors.Join(l.charge(body.size()), h.disk.room(body.size())) // git writes it once more
}

// finishTime is how long a push that git has begun to take in may go on when all is to end:
// to move refs takes a moment, and to be killed in the midst of it leaves some of them.
const finishTime = 5 * time.Second

// take has git take in a push, to its end: the client may go away meanwhile. Of one
// that failed nothing is left. It is called with the lock of the repository.
func (h *Handler) take(ctx context.Context, w http.ResponseWriter, ref graspsync.RepoRef, c call) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.fixed.Timeout)
	defer cancel()
	over := ctx.Done()
	defer context.AfterFunc(h.tasks.ctx, func() {
		select {
		case <-time.After(finishTime):
			cancel()
		case <-over:
		}
	})()
	ctx, stop := h.disk.whileRoom(ctx)
	done := h.run(ctx, w, ref, c)
	stop()
	if done {
		return
	}
	if err := h.repos.sweep(h.repos.at(ref)); err != nil {
		h.cfg.Logger.Warn("a push could not be removed", "repo", graspsync.Printable(ref.String()), "error", err)
	}
}

// moot answers a push of which nothing is left to be done, and one that git would not do,
// since a ref is neither where the client takes it to be nor where it wants it. Anybody
// can make such a push again and again: what comes with it must not become part of the
// repository, as it would though git moved nothing. It is called with the lock of the
// repository; the refs of the push are returned as they are.
func (h *Handler) moot(w http.ResponseWriter, ref graspsync.RepoRef, req request) (now map[nip34.RefName]nip34.ObjectID, answered bool, err error) {
	if now, err = h.refs(ref, req); err != nil {
		return nil, false, err
	}
	stale, moves := make(map[nip34.RefName]string), false
	for _, c := range req.commands {
		switch now[c.ref] {
		case c.new:
		case c.old:
			moves = true
		default:
			stale[c.ref] = refusedStale
		}
	}
	switch {
	case len(stale) > 0:
		report(w, req, func() error { return writeReport(w, req, stale) })
	case !moves:
		report(w, req, func() error { return writeResults(w, req, nil, "") })
	default:
		return now, false, nil
	}
	return now, true, nil
}

// refs reads where the refs are that a push names.
func (h *Handler) refs(ref graspsync.RepoRef, req request) (map[nip34.RefName]nip34.ObjectID, error) {
	now, err := barerepo.Refs(h.repos.root, filepath.FromSlash(h.repos.at(ref)), req.names())
	if err != nil {
		return nil, fmt.Errorf("reading refs: %w", err)
	}
	return now, nil
}

// report answers a push without git, if the client wants to hear anything.
func report(w http.ResponseWriter, req request, write func() error) {
	w.Header().Set("Content-Type", "application/x-git-receive-pack-result")
	w.Header().Set("Cache-Control", "no-cache")
	if req.report {
		_ = write() // the client is gone if this fails
	}
}

// settled waits until it was seen to what a push has brought. alive is called again and again
// meanwhile. The push is done: it has left the place of its visit to others, who need that more,
// and where too many wait already, by their shares, it is answered at once.
func (h *Handler) settled(ctx context.Context, v *visit, ref graspsync.RepoRef, alive func()) {
	leave, ok := h.settling.try(v.who)
	if !ok {
		return
	}
	defer leave()
	v.leave()
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
				h.failures.say(ref, "a push was answered before its events are served", err)
			}
			return
		case <-tick.C:
			alive()
		}
	}
}

const (
	// settledMost is how long a push is not answered because its events are not served: most
	// are within a second, and that a relay can't store some is not for whoever pushed to
	// wait for.
	settledMost = 30 * time.Second
	// aliveEvery is how often a client is told meanwhile that we are here: some give up when
	// they hear nothing for 10 seconds.
	aliveEvery = 5 * time.Second
)

// page is for who opens the address of a repository in a browser. What it says takes as much
// reading as git does for who asks for the refs: it has a place for that as well.
func (h *Handler) page(ctx context.Context, w http.ResponseWriter, v *visit, r *http.Request, ref graspsync.RepoRef) {
	leave, err := h.asks.enter(ctx, v, h.cfg.fixed.Wait)
	if err != nil {
		busy(w)
		return
	}
	defer leave() // Describe may panic
	p, err := h.describe(ctx, r, ref)
	leave()
	if err != nil {
		h.fail(w, ref, missing(err))
		return
	}
	_ = WritePage(w, http.StatusOK, repositoryPage, p) // the client is gone if this fails
}

// describe finds out what the page of a repository shows.
func (h *Handler) describe(ctx context.Context, r *http.Request, ref graspsync.RepoRef) (pageOf, error) {
	refs, head, err := h.repos.shown(h.repos.at(ref))
	if err != nil {
		return pageOf{}, err
	}
	owner := nip34.NPub(ref.Owner)
	p := pageOf{
		Title: ref.Identifier, Owner: owner, Identifier: ref.Identifier,
		Clone: Origin(r) + pasted(originalPath(r)), Nostr: "nostr://" + owner + "/" + pasted(url.PathEscape(ref.Identifier)),
		HEAD: strings.TrimPrefix(head, "refs/heads/"), Branches: shownOf(refs, "refs/heads/"), Tags: shownOf(refs, "refs/tags/"),
	}
	p.Naddr, _ = nip19.EncodeEntity(ref.Owner.String(), graspsync.KindAnnouncement, ref.Identifier, nil) // it is only a link
	about, err := h.cfg.Describe(ctx, ref)
	if err != nil {
		h.failures.warn(ref, err) // the page has less then
	}
	p.describe(about)
	return p, nil
}

func (h *Handler) party(r *http.Request, ref graspsync.RepoRef) party {
	client, network := identify(h.cfg.Client(r))
	return party{client: client, network: network, owner: ref.Owner.String(), repo: ref.String()}
}

// forEvents reports whether a push is for nothing but the refs of events: what it says of
// branches and tags is so already. It does not wait for the lock.
func (h *Handler) forEvents(ref graspsync.RepoRef, r request) (bool, error) {
	now, err := h.refs(ref, r)
	if err != nil {
		return false, err
	}
	for _, c := range r.commands {
		if _, ok := eventOf(c.ref); !ok && now[c.ref] != c.new {
			return false, nil
		}
	}
	return true, nil
}

// open begins to read a body, unpacked, of at most as many bytes, until end. One that came
// packed may have a smaller bound.
func (h *Handler) open(w http.ResponseWriter, r *http.Request, v *visit, most, packed int64, end time.Time) (*body, error) {
	wire, pace := http.NewResponseController(w), h.cfg.sending(v, end)
	came := &patientBody{Reader: r.Body, c: wire, pace: &pace}
	var from io.Reader = came
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip", "x-gzip":
		unpacked, err := gzip.NewReader(from)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBody, err)
		}
		from, most = unpacked, min(most, packed)
	default:
		return nil, fmt.Errorf("%w: unknown content encoding", errBody)
	}
	file, err := h.disk.scratch()
	if err != nil {
		return nil, fmt.Errorf("keeping a request: %w", err)
	}
	return &body{file: file, from: from, wire: wire, pace: &pace, most: most, max: most, came: came}, nil
}

// Collector returns the metrics, computed when they are asked for. The caller registers
// it. namespace goes before their names, without an underscore.
func (h *Handler) Collector(namespace string) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "gitserve", name), help, labels, nil)
	}
	return &collector{
		h:       h,
		visits:  desc("requests", "Requests that are here: being read, waiting, or being answered.", "kind"),
		running: desc("running", "Runs of git for requests.", "kind"),
		waiting: desc("waiting", "Requests that wait, for room or for a run of git.", "kind", "for"),
		waited:  desc("waited_seconds_total", "Time that requests have waited, for room or for a run of git.", "kind", "for"),
		refused: desc("refused_total", "Requests that were told to come again, for want of room or of a run of git.", "kind", "for"),
		pushes:  desc("pushes_refused_total", "Pushes that were refused, by why.", "reason"),
		shed:    desc("shed_total", "Requests that had to make room for others, since their clients were slow.", "kind"),
		kept:    desc("kept_bytes", "What is kept on the disk of requests that are here.", "kind"),
		locks:   desc("lock_waited_seconds_total", "Time that pushes have waited for the locks of repositories."),
		free:    desc("disk_free_bytes", "Free space of the disk of the repositories."),
	}
}
