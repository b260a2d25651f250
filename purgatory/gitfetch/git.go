package gitfetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// ErrGit is wrapped by errors about the git program.
var ErrGit = gitrun.ErrGit

// The oldest git version with all required commands and crash safety.
const (
	leastMajor = 2
	leastMinor = 39
)

var versionPattern = regexp.MustCompile(`^git version (\d+)\.(\d+)`)

// versionWithin is the maximum time of git version, so that a hanging program is an error.
const versionWithin = 10 * time.Second

func checkVersion(ctx context.Context, path string, within time.Duration) (version, build string, err error) {
	if path, err = exec.LookPath(path); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrGit, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %s", within))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "version", "--build-options")
	cmd.Env, cmd.WaitDelay = environment, time.Second
	out, err := cmd.Output()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return "", "", fmt.Errorf("%w: asking for its version: %w", ErrGit, err)
	}
	version, build, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return "", "", fmt.Errorf("%w: %s is no version of git", ErrGit, graspsync.Printable(version))
	}
	major, _ := strconv.Atoi(m[1]) // the pattern matches digits
	minor, _ := strconv.Atoi(m[2])
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return "", "", fmt.Errorf("%w: %s, want %d.%d or later", ErrGit, version, leastMajor, leastMinor)
	}
	return version, build, nil
}

// weakHash reports whether git's build options name a SHA-1 without collision detection. Git before
// 2.49 does not list it.
func weakHash(build string) bool {
	for line := range strings.Lines(build) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "SHA-1: "); ok {
			return !strings.HasPrefix(name, "SHA1_DC")
		}
	}
	return false
}

// environment disables shallow files, so that missing history is an error.
var environment = append(gitrun.Environment(), "GIT_SHALLOW_FILE=")

// settings disable commit graphs, because they may list removed commits.
var settings = append(gitrun.Settings(), "-c", "core.commitGraph=false")

// program runs git in the slots of children.
type program struct {
	*gitrun.Program
	children *limit.Slots // by owner
}

func (g *program) run(ctx context.Context, c gitrun.Child) ([]byte, error) {
	began := time.Now()
	release, err := g.acquire(ctx, c.Dir)
	if err != nil {
		return nil, err
	}
	defer release()
	ran := time.Now()
	out, err := g.runNow(ctx, c)
	if err != nil && ctx.Err() != nil && ran.Sub(began) > time.Since(ran) { // most of its time was spent waiting
		err = fmt.Errorf("%w: %w", gitops.ErrBusy, err)
	}
	return out, err
}

// acquire waits for a slot to run a child, with owners in rotation.
func (g *program) acquire(ctx context.Context, dir string) (release func(), err error) {
	slot, err := g.children.Acquire(ctx, limit.Stranger{ID: ownerOf(dir)}, 1)
	if err != nil {
		return nil, fmt.Errorf("waiting to run git: %w: %w", gitops.ErrBusy, err)
	}
	return slot.Release, nil
}

// ownerOf returns the parent folder of a repository, of which gitserve has one per owner.
func ownerOf(dir string) string { return filepath.Dir(dir) }

// runNow runs git, by default with the memory to walk the repository. The caller holds a slot.
func (g *program) runNow(ctx context.Context, c gitrun.Child) ([]byte, error) {
	if c.Limits.Memory == 0 {
		c.Limits.Memory = g.Memory.Walk(c.Dir)
	}
	memory, err := g.Memory.Acquire(ctx, limit.Stranger{}, c.Limits.Memory)
	if err != nil {
		return nil, fmt.Errorf("waiting for memory to run git: %w: %w", gitops.ErrBusy, err)
	}
	defer memory.Release()
	var out bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &out
	}
	err = g.Run(ctx, c)
	if err != nil && ctx.Err() != nil { // not an error of git
		err = fmt.Errorf("running git %s: %w", c.Args[0], context.Cause(ctx))
	}
	return out.Bytes(), err
}

// isVerdict reports whether git completed its check and failed. It was not killed or out of memory,
// and the shell has started it.
func isVerdict(err error) bool {
	var failed *gitrun.Error
	if !errors.As(err, &failed) || gitrun.OutOfMemory(failed.Stderr) {
		return false
	}
	code := failed.Code()
	return code > 0 && (code < 125 || code > 127)
}
