package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

type verdict string

const (
	killed   verdict = "killed"
	timeout  verdict = "timeout" // counts as killed
	survived verdict = "survived"
	invalid  verdict = "does not compile"
)

// run is the result of tests.
type run struct {
	err  error
	late bool   // timed out
	by   string // first line that reports a failure
}

// try judges a mutation by the tests that reach it, the fastest first.
func try(ctx context.Context, root string, p point, tests []covered, limit time.Duration) (verdict, string, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return "", "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := mutate(root, p, dir)
	if err != nil {
		return "", "", err
	}
	bin := filepath.Join(dir, "test")
	if text, err := goTool(ctx, root, "test", "-vet=off", "-c", "-overlay", overlay, "-o", bin, "./"+p.pkg()); err != nil {
		return invalid, strings.TrimSpace(text), ctx.Err()
	}
	for _, names := range batches(p, tests) {
		r := runTests(ctx, filepath.Join(root, p.pkg()), bin, dir, limit, "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$")
		switch {
		case ctx.Err() != nil:
			return "", "", ctx.Err()
		case r.err == nil:
		case r.late && r.by == "":
			return timeout, "", nil
		default:
			return killed, r.by, nil
		}
	}
	return survived, "", nil
}

// mutate writes the mutated file and returns the overlay for go test.
func mutate(root string, p point, dir string) (overlay string, err error) {
	path, err := filepath.Abs(filepath.Join(root, p.file))
	if err != nil {
		return "", err
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	mutant := filepath.Join(dir, "mutant.go")
	text := bytes.Join([][]byte{src[:p.from], []byte(p.text), src[p.to:]}, nil)
	if err := os.WriteFile(mutant, text, 0o600); err != nil {
		return "", err
	}
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, replaced, 0o600)
}

// batches returns the names of the tests that reach a point, in batches of increasing duration,
// because the first batch catches most mutations.
func batches(p point, tests []covered) (out [][]string) {
	var names []string
	sum, limit := time.Duration(0), 2*time.Second
	for _, c := range tests {
		if !c.reaches(p) {
			continue
		}
		names = append(names, c.test)
		if sum += c.took; sum > limit {
			out, names, sum, limit = append(out, names), nil, 0, 4*limit
		}
	}
	if len(names) > 0 {
		out = append(out, names)
	}
	return out
}

func runTests(ctx context.Context, dir, bin, scratch string, limit time.Duration, args ...string) (r run) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
	cmd.Env = append(os.Environ(), "TMPDIR="+scratch, "GRASPSYNC_ROUNDS=3") // all cases, not a random sample
	text, err := cmd.CombinedOutput()
	r.err, r.late = err, ctx.Err() != nil
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "--- FAIL") || strings.HasPrefix(line, "panic:") {
			r.by = strings.TrimSpace(line)
			break
		}
	}
	return r
}

func goTool(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	text, err := cmd.CombinedOutput()
	if err != nil {
		return string(text), fmt.Errorf("go %s: %w", args[0], err)
	}
	return string(text), nil
}
