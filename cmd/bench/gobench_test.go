package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBenchmarked(t *testing.T) {
	got, err := benchmarked("goos: linux\nBenchmarkA/n=5-2 \t 3\t 120 ns/op\t 7.5 rounds\nBenchmarkA/n=5-2 \t 3\t 110 ns/op\t 8 rounds\n" +
		"BenchmarkB \t 1\t 3 ns/op\nPASS\nok x 1s\n")
	require.NoError(t, err)
	require.Equal(t, map[string]values{"A/n=5": {"ns/op": 110, "rounds": 7.5}, "B": {"ns/op": 3}}, got)
	_, err = benchmarked("PASS\n")
	require.Error(t, err, "a benchmark that is not there any more is no result")
}

// The benchmarks that rows run are in the source.
func TestBenchmarksExist(t *testing.T) {
	for file, name := range map[string]string{
		"sync/internal/plan/change_test.go": "BenchmarkChange", "sync/internal/negentropy/bench_test.go": "BenchmarkOurSide",
		"sync/negentropysets_internal_test.go": "BenchmarkSetOfManyRelays",
	} {
		text, err := os.ReadFile("../../" + file)
		require.NoError(t, err)
		require.Contains(t, string(text), "func "+name+"(", "cmd/bench runs it")
	}
}
