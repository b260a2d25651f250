package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// story is what is special about the git data of a repository.
type story int

const (
	plain   story = iota // all of it is on one server
	split                // one commit is on the second server only
	late                 // one commit appears when it was looked for in vain
	pushed               // on no server: its owner pushes it to us
	never                // one commit is nowhere
	forsook              // as plain, but for a pull request whose commit is nowhere
	foreign              // not for us
)

// storyOf says which repository has which story.
func storyOf(i int) story {
	switch {
	case i >= 10 && i < 20:
		return split
	case i == 20 || i == 21:
		return late
	case i == 22 || i == 23:
		return pushed
	case i == 24:
		return never
	case i == 25 || i == 26:
		return forsook
	}
	return plain
}

// The marks of what a history has.
const (
	markFirst, markSecond, markThird, markTag = 1, 2, 3, 4
	markPull                                  = 10  // and one for each further pull request
	markLast                                  = 100 // the newest commit, of branch dev
)

// code is the git data of a repository.
type code struct {
	path  string // below a server: <npub>/<name>.git
	story story
	base  []byte // a stream for git fast-import
	last  []byte // what comes after that: the newest commit
	ids   map[int]string
}

// newCode writes a history: three commits, an annotated tag, a commit for each pull
// request, and a branch with the newest commit.
func newCode(path string, s story, pulls int) *code {
	var w bytes.Buffer
	commit := func(mark int, ref string, parent int, text string) {
		fmt.Fprintf(&w, "commit %s\nmark :%d\nauthor A <a@example.com> %d +0000\ncommitter A <a@example.com> %[3]d +0000\ndata %d\n%s\n",
			ref, mark, 1_700_000_000+mark, len(text), text)
		if parent != 0 {
			fmt.Fprintf(&w, "from :%d\n", parent)
		}
		body := strings.Repeat(path+": "+text+"\n", 40)
		fmt.Fprintf(&w, "M 100644 inline src/%d.txt\ndata %d\n%s\n", mark, len(body), body)
	}
	commit(markFirst, "refs/heads/main", 0, "first")
	commit(markSecond, "refs/heads/main", markFirst, "second")
	commit(markThird, "refs/heads/main", markSecond, "third")
	fmt.Fprintf(&w, "tag v1\nmark :%d\nfrom :%d\ntagger A <a@example.com> 1700000000 +0000\ndata 2\nv1\n", markTag, markSecond)
	for n := range pulls {
		commit(markPull+n, fmt.Sprintf("refs/pull/%d/head", n+1), markThird, fmt.Sprintf("proposal %d", n+1))
	}
	c := &code{path: path, story: s, base: bytes.Clone(w.Bytes())}
	commit(markLast, "refs/heads/dev", markThird, "newest")
	c.last = w.Bytes()[len(c.base):]
	return c
}

// state returns the tags of a state event, of the repository as it was at some time:
// 1, 2 or 3.
func (c *code) state(version int) [][]string {
	main := [...]int{0, markFirst, markSecond, markThird}[version]
	tags := [][]string{{"HEAD", "ref: refs/heads/main"}, {"refs/heads/main", c.ids[main]}}
	if version == 3 {
		tags = append(tags, []string{"refs/tags/v1", c.ids[markTag]}, []string{"refs/heads/dev", c.ids[markLast]})
	}
	return tags
}

// place puts the git data where it is at first, and finds out the ids. What is on no
// server is in the workshop.
func (c *code) place(ctx context.Context, main, second *gitServer, workshop string) (err error) {
	whole := main.dir
	switch c.story {
	case split:
		whole = second.dir
	case late, pushed, never:
		whole = workshop
	}
	c.ids, err = fastImport(ctx, filepath.Join(whole, c.path), c.base, c.last)
	if err == nil && (c.story == split || c.story == late || c.story == never) {
		_, err = fastImport(ctx, filepath.Join(main.dir, c.path), c.base)
	}
	return err
}

// complete adds what was missing on a server.
func (c *code) complete(ctx context.Context, on *gitServer) error {
	_, err := fastImport(ctx, filepath.Join(on.dir, c.path), c.base, c.last)
	return err
}

// fastImport makes a bare repository, if need be, and returns the ids of what was
// imported by their marks.
func fastImport(ctx context.Context, dir string, streams ...[]byte) (map[int]string, error) {
	if _, err := os.Stat(dir); err != nil {
		if _, err := runGit(ctx, ".", nil, "init", "-q", "--bare", "-b", "main", dir); err != nil {
			return nil, err
		}
	}
	marks := filepath.Join(dir, "marks")
	if _, err := runGit(ctx, dir, bytes.Join(streams, nil), "fast-import", "--quiet", "--export-marks="+marks); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(marks)
	if err != nil {
		return nil, err
	}
	ids := make(map[int]string)
	for line := range strings.Lines(string(text)) {
		mark, id, ok := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(strings.TrimPrefix(mark, ":"))
		if !ok || err != nil {
			return nil, fmt.Errorf("git fast-import: unexpected mark %q", line)
		}
		ids[n] = id
	}
	return ids, nil
}

// runGit runs git as somebody without any configuration.
func runGit(ctx context.Context, dir string, input []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Stdin, cmd.Env = dir, bytes.NewReader(input), gitEnv()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return out.String(), nil
}

func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TERMINAL_PROMPT=0",
	}
}
