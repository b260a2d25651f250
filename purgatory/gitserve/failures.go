package gitserve

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/seldom"
)

// failures logs what went wrong with a repository though it is nobody's loss: once in a while,
// since anybody can cause it. It is safe for concurrent use.
type failures struct {
	log    *slog.Logger
	absent atomic.Uint64 // requests for objects that are not here
	lines  seldom.Lines[graspsync.RepoRef]
}

// fault logs why git refused a fetch request. That an object is not here yet is no reason for a warning: other
// servers ask for it until it is.
func (f *failures) fault(ref graspsync.RepoRef, fault *faultError) {
	if strings.Contains(fault.why, "not our ref") || strings.Contains(fault.why, "unadvertised object") {
		f.absent.Add(1)
	}
	f.log.Debug("fetch refused", "repo", graspsync.Printable(ref.String()), "reason", fault.why)
}

// warn says that a request failed.
func (f *failures) warn(ref graspsync.RepoRef, err error) {
	f.say(slog.LevelWarn, ref, "git request failed", err)
}

func (f *failures) say(level slog.Level, ref graspsync.RepoRef, what string, err error) {
	if f.lines.May(ref, time.Now()) {
		f.log.Log(context.Background(), level, what, "repo", graspsync.Printable(ref.String()), "error", graspsync.Printable(err.Error()))
	}
}
