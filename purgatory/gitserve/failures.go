package gitserve

import (
	"log/slog"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/seldom"
)

// failures logs what went wrong with a repository though it is nobody's loss: once in a while,
// since anybody can cause it. It is safe for concurrent use.
type failures struct {
	log   *slog.Logger
	lines seldom.Lines[graspsync.RepoRef]
}

// warn says that a request failed.
func (f *failures) warn(ref graspsync.RepoRef, err error) { f.say(ref, "git request failed", err) }

func (f *failures) say(ref graspsync.RepoRef, what string, err error) {
	if f.lines.May(ref, time.Now()) {
		f.log.Warn(what, "repo", graspsync.Printable(ref.String()), "error", graspsync.Printable(err.Error()))
	}
}
