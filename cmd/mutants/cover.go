package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// covered is a test with its duration and the lines of its package that it runs.
type covered struct {
	test string
	took time.Duration
	runs map[string][][2]int // first and last lines by file
}

// reaches reports whether a test runs the declaration of a point. Points outside functions count as
// reached by every test.
func (c covered) reaches(p point) bool {
	return !p.inner || slices.ContainsFunc(c.runs[path.Base(p.file)], func(b [2]int) bool { return b[0] <= p.last && p.first <= b[1] })
}

// measure runs each test of pkgs alone and returns their coverage, the fastest first. Tests that
// fail are reported, because they cannot judge a mutation.
func measure(ctx context.Context, root string, pkgs []string, workers int) (map[string][]covered, error) {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	type job struct{ pkg, bin, test string }
	var (
		jobs = make(chan job)
		mu   sync.Mutex
		out  = make(map[string][]covered)
		wg   sync.WaitGroup
	)
	for range workers {
		wg.Go(func() {
			for j := range jobs {
				c, err := measureOne(ctx, filepath.Join(root, j.pkg), j.bin, j.test)
				if err != nil {
					fmt.Println("fails without a mutation:", j.pkg, j.test)
				}
				mu.Lock()
				out[j.pkg] = append(out[j.pkg], c)
				mu.Unlock()
			}
		})
	}
	for i, pkg := range pkgs {
		bin := filepath.Join(dir, fmt.Sprint(i))
		text, err := goTool(ctx, root, "test", "-vet=off", "-c", "-cover", "-covermode=set", "-coverpkg=./"+pkg, "-o", bin, "./"+pkg)
		if err != nil {
			close(jobs)
			wg.Wait()
			return nil, fmt.Errorf("%s: %w: %s", pkg, err, text)
		}
		list := exec.CommandContext(ctx, bin, "-test.list", "^(Test|Example|Fuzz)")
		list.Dir = filepath.Join(root, pkg)
		names, err := list.Output()
		if err != nil {
			continue // no tests
		}
		for _, name := range strings.Fields(string(names)) {
			jobs <- job{pkg, bin, name}
		}
	}
	close(jobs)
	wg.Wait()
	for _, tests := range out {
		slices.SortFunc(tests, func(a, b covered) int { return int(a.took - b.took) })
	}
	return out, nil
}

func measureOne(ctx context.Context, dir, bin, test string) (covered, error) {
	c := covered{test: test, runs: make(map[string][][2]int)}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return c, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	profile := filepath.Join(scratch, "profile")
	began := time.Now()
	failed := runTests(ctx, dir, bin, scratch, 10*time.Minute, "-test.run", "^"+test+"$", "-test.coverprofile", profile)
	c.took = time.Since(began)
	text, err := os.ReadFile(profile)
	if err != nil {
		return c, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		file, rest, ok := strings.Cut(lines.Text(), ":")
		var from, fromColumn, to, toColumn, statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &from, &fromColumn, &to, &toColumn, &statements, &count); ok && err == nil && count > 0 {
			c.runs[path.Base(file)] = append(c.runs[path.Base(file)], [2]int{from, to})
		}
	}
	return c, failed.err
}
