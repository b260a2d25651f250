package gitserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// A push that has come to its end waits six times as long as a question for its turn, and as
// long as that counts as a wait for the lock.
func TestWaitForATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Open(filepath.Join(t.TempDir(), "git"), RepositoriesConfig{})
		require.NoError(t, err)
		x := owner.Ref("x")
		require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
		h, err := New(r, &authority{}, Config{fixed: numbers{Wait: 7 * time.Second}})
		require.NoError(t, err)
		who := limit.Stranger{ID: "c"}
		began := time.Now()
		done, err := h.turn(t.Context(), who, x)
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		_, err = h.turn(t.Context(), who, x)
		require.ErrorIs(t, err, errBusy)
		require.ErrorContains(t, err, "it was never its turn")
		require.Equal(t, 42*time.Second, time.Since(began))
		require.EqualValues(t, 42*time.Second, h.locks.Load(), "it waited behind who has it")
		done()
		_, unlock, err := r.Lock(t.Context(), x)
		require.NoError(t, err)
		_, err = h.turn(t.Context(), who, x)
		require.ErrorIs(t, err, errBusy)
		require.EqualValues(t, 84*time.Second, h.locks.Load())
		unlock()
		empty := fill(t, h.pushes.processes)
		began = time.Now()
		_, err = h.turn(t.Context(), who, x)
		require.ErrorIs(t, err, errBusy)
		require.Equal(t, 7*time.Second, time.Since(began), "a place is not worth more than that")
		require.EqualValues(t, 84*time.Second, h.locks.Load())
		empty()
		_, err = h.turn(t.Context(), who, owner.Ref("none"))
		require.ErrorIs(t, err, purgatory.ErrNoRepository)
		done, err = h.turn(t.Context(), who, x)
		require.NoError(t, err)
		done()
		done()
		h.Close()
		h.idle(t)
		r.idle(t)
		require.NoError(t, r.Close())
	})
}

// Whatever keeps a request from being served has an answer of its own; what is no fault of the
// client is in the log.
func TestAnswerToEachFailure(t *testing.T) {
	var log strings.Builder
	cfg := Config{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: untimed}))}
	for err, want := range map[error]struct {
		status int
		text   string
		logged bool
	}{
		fmt.Errorf("x: %w", errBusy):                          {503, "x: too many requests at once", false},
		fmt.Errorf("x: %w", purgatory.ErrNoRepository):        {404, "no such repository: an announcement that lists this server comes first", false},
		fmt.Errorf("x: %w", &limitError{"more than 7 bytes"}): {413, "more than 7 bytes", true},
		fmt.Errorf("%w: not so", errRequest):                  {403, "push not understood: not so", false},
		fmt.Errorf("x: %w", errBody):                          {400, "the request could not be read", false},
		fmt.Errorf("x: %w", io.ErrUnexpectedEOF):              {400, "the request could not be read", false},
		fmt.Errorf("x: %w", errOwnerFull):                     {507, errOwnerFull.Error(), true},
		fmt.Errorf("x: %w", errPullsFull):                     {507, errPullsFull.Error(), true},
		fmt.Errorf("x: %w", errFull):                          {507, errFull.Error(), true},
		fmt.Errorf("x: %w", errDisk):                          {507, refusedDisk, true},
		errors.New("a secret\x1b[2J of ours"):                 {500, "internal error", true},
	} {
		log.Reset()
		h := &Handler{cfg: cfg, failures: &failures{log: cfg.Logger}}
		for range 2 {
			w := httptest.NewRecorder()
			h.fail(w, owner.Ref("x"), err)
			require.Equal(t, want.status, w.Code, "%v", err)
			require.Equal(t, want.text+"\n", w.Body.String(), "%v", err)
			after := ""
			if want.status == 503 {
				after = "30"
			}
			require.Equal(t, after, w.Header().Get("Retry-After"))
		}
		said := ""
		if want.logged { // once in a while
			said = fmt.Sprintf("level=WARN msg=\"git request failed\" repo=%s error=%s\n", quoted(owner.Ref("x").String()), quoted(err.Error()))
		}
		require.Equal(t, said, log.String())
	}
}

func untimed(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// quoted is a text of others as a log has it.
func quoted(s string) string {
	s = graspsync.Printable(s)
	if strings.ContainsAny(s, ` ="\`) {
		return strconv.Quote(s)
	}
	return s
}

// What is done though nobody who pushed hears of it is in the log: that a push could not be
// reported, and that what it waited for did not come.
func TestLogOfAPush(t *testing.T) {
	var log strings.Builder
	boom := errors.New("boom")
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: untimed}))
	h := &Handler{cfg: Config{Logger: logger}, failures: &failures{log: logger}, settling: newSlots(1, 1)}
	h.auth = reporting{&authority{}, func(ctx context.Context) error {
		require.NoError(t, ctx.Err(), "the client is gone, and what it pushed is here")
		until, limited := ctx.Deadline()
		require.True(t, limited)
		require.InDelta(t, 59.5, time.Until(until).Seconds(), 0.5)
		return boom
	}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.pushed(ctx, owner.Ref("x"), nil)
	h.auth = reporting{&authority{}, func(context.Context) error { return nil }}
	h.pushed(ctx, owner.Ref("x"), nil)
	for range 2 {
		h.auth = settling{&authority{}, func(context.Context) error { return boom }}
		h.settled(t.Context(), &transfer{close: func() {}}, owner.Ref("x"), func() {})
	}
	name := owner.Ref("x").String()
	require.Equal(t, "level=ERROR msg=\"a push could not be reported\" repo="+name+" error=boom\n"+
		"level=WARN msg=\"a push was answered before its events are served\" repo="+name+" error=boom\n", log.String())
}

// reporting is an authority that does something when it is told of a push.
type reporting struct {
	*authority
	told func(ctx context.Context) error
}

func (r reporting) AfterPush(ctx context.Context, _ graspsync.RepoRef, _ []nip34.RefName) error {
	return r.told(ctx)
}
