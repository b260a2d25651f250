package gitserve

import (
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

// failed logs what git answered with an error. That an object is not here yet is no reason for a warning:
// other servers ask for it until it is.
func (f *failures) failed(ref graspsync.RepoRef, err error) {
	if text := err.Error(); strings.Contains(text, "not our ref") || strings.Contains(text, "unadvertised object") {
		f.absent.Add(1)
		f.log.Debug("an object that is not here was asked for", "repo", graspsync.Printable(ref.String()), "error", graspsync.Printable(text))
		return
	}
	f.warn(ref, err)
}

// warn says that a request failed.
func (f *failures) warn(ref graspsync.RepoRef, err error) { f.say(ref, "git request failed", err) }

func (f *failures) say(ref graspsync.RepoRef, what string, err error) {
	if f.lines.May(ref, time.Now()) {
		f.log.Warn(what, "repo", graspsync.Printable(ref.String()), "error", graspsync.Printable(err.Error()))
	}
}
