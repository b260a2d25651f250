package gitserve

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// While a push that is done waits for its events it takes nothing any more: no room of its owner
// and no file.
func TestPushThatWaitsTakesNothing(t *testing.T) {
	r := rigWith(t, RepositoriesConfig{MaxOwnerBytes: 1 << 30}, Config{})
	n := &noted{folder: r.repos.root}
	r.git.tasks.mu.Lock() // which each request takes
	r.repos.root = n
	asked := 0
	r.git.auth = settling{r.authority, func(context.Context) error {
		asked++
		q := r.repos.quota
		q.mu.Lock()
		s := *q.usages[owner.Hex()]
		q.mu.Unlock()
		open := 0
		n.mu.Lock()
		for _, file := range n.open {
			if _, err := file.Stat(); err == nil {
				open++
			}
		}
		n.mu.Unlock()
		if s.pending != 0 || !s.measured.IsZero() || open != 0 {
			return fmt.Errorf("%+v, %d files", s, open)
		}
		return nil
	}}
	var log strings.Builder
	r.git.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r.git.failures.log = r.git.cfg.Logger
	r.git.tasks.mu.Unlock()
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	r.git.Close()
	require.Equal(t, 1, asked)
	require.Empty(t, log.String())
	n.closed(t, "a push")
}
