package gitserve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
)

// errDisk is wrapped when less than Config.MinFreeDisk would be free.
var errDisk = errors.New("not enough free disk")

// room reports whether there is room for more bytes.
func (h *Handler) room(more int64) error {
	free, err := h.free(h.repos.dir)
	if err != nil {
		return fmt.Errorf("looking at the disk: %w", err)
	}
	if free < h.cfg.MinFreeDisk || free-h.cfg.MinFreeDisk < uint64(more) {
		return fmt.Errorf("%w: %d bytes", errDisk, free)
	}
	return nil
}

// weighPulls says how much of a repository only pull requests need, in bytes.
func (h *Handler) weighPulls(ctx context.Context, dir string) (int64, error) {
	line := append(append([]string{h.cfg.Git, "--git-dir=."}, h.settings...),
		"rev-list", "--objects", "--disk-usage", "--glob=refs/nostr", "--not", "--branches", "--tags")
	cmd, release, err := h.guarded(ctx, limits{memory: h.cfg.MaxMemory, cpu: partMost, file: 1}, line...)
	if err != nil {
		return 0, fmt.Errorf("running git: %w", err)
	}
	defer release()
	cmd.Dir, cmd.Env = dir, append([]string{"GIT_ALLOC_LIMIT=" + strconv.FormatInt(h.cfg.fixed.MaxAlloc, 10)}, environment...)
	said := &tail{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("git rev-list: %w: %s", err, said)
	}
	return strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
}

// roomPeriod is how often the disk is looked at while git takes in a push.
const roomPeriod = time.Second

// whileRoom ends a context when there is no more room.
func (h *Handler) whileRoom(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(roomPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := h.room(0); err != nil {
					cancel(err)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// receive reads what is left of a push, as long as there is room for it.
func (h *Handler) receive(body *body, l *levy) error {
	body.room = func() error { return errors.Join(l.charge(body.size()), h.room(0)) }
	if err := body.room(); err != nil {
		return err
	}
	if err := body.readAll(); err != nil {
		return err
	}
	return errors.Join(l.charge(body.size()), h.room(body.size())) // git writes it once more
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
	defer context.AfterFunc(h.ctx, func() {
		select {
		case <-time.After(finishTime):
			cancel()
		case <-over:
		}
	})()
	ctx, stop := h.whileRoom(ctx)
	done := h.run(ctx, w, ref, c)
	stop()
	if done {
		return
	}
	if err := h.repos.sweep(place(ref)); err != nil {
		h.cfg.Logger.Warn("a push could not be removed", "repo", graspsync.Printable(ref.String()), "error", err)
	}
}
