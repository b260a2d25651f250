package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

const module = "github.com/graspsync/graspsync"

// values are results of a benchmark by unit.
type values map[string]float64

// processors is the suffix of a benchmark's name on several processors.
var processors = regexp.MustCompile(`-\d+$`)

// benchmarked parses the output of benchmarks. For repeated benchmarks it keeps the minimum of each
// unit, because other programs only add to it.
func benchmarked(out string) (map[string]values, error) {
	all := make(map[string]values)
	lines := bufio.NewScanner(strings.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		if all[name] == nil {
			all[name] = make(values)
		}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("benchmark %s: %w", name, err)
			}
			if before, again := all[name][fields[i+1]]; !again || v < before {
				all[name][fields[i+1]] = v
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no benchmark ran:\n%s", out)
	}
	return all, nil
}

// benchmark runs benchmarks of the internals of a package in a separate process. args are arguments
// of go test.
func (r *run) benchmark(pkg, pattern string, args ...string) (map[string]values, error) {
	args = append([]string{"test", "-run", "^$", "-bench", pattern, "-timeout", "10m"}, args...)
	out, err := exec.CommandContext(r.ctx, "go", append(args, module+"/"+pkg)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test of %s: %w\n%s", pkg, err, out)
	}
	return benchmarked(string(out))
}
