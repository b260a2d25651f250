// Mutants applies random mutations to the product code and reports those that no test of their
// package catches. A mutation replaces an operator or condition, increments a number, sets an error
// to nil, or removes a call, an assignment or a return. Run it in the root of the module:
//
//	go run ./cmd/mutants -n 200 -seed 1
//
// First it runs each test alone to measure its coverage. For all packages this takes 15 minutes. It
// changes no file.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	if err := draw(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func draw() error {
	n := flag.Int("n", 200, "mutations to judge")
	seed := flag.Uint64("seed", 1, "of the draw")
	only := flag.String("only", "", "folders of packages, separated by commas; all if empty")
	workers := flag.Int("workers", 2, "mutations at a time")
	limit := flag.Duration("limit", 5*time.Minute, "for tests before they count as hung")
	list := flag.Bool("list", false, "print the mutations without trying them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var folders []string
	if *only != "" {
		folders = strings.Split(*only, ",")
	}
	all, err := points(".", folders)
	if err != nil {
		return err
	}
	fmt.Println(len(all), "points")
	rng := rand.New(rand.NewPCG(*seed, *seed)) //nolint:gosec // a draw that can be made again
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	drawn := all[:min(len(all), *n+*n/4)] // more than n, because some do not compile
	if *list {
		for _, p := range drawn {
			fmt.Println(p)
		}
		return nil
	}
	var pkgs []string
	for _, p := range drawn {
		if !slices.Contains(pkgs, p.pkg()) {
			pkgs = append(pkgs, p.pkg())
		}
	}
	tests, err := measure(ctx, ".", pkgs, *workers)
	if err != nil {
		return err
	}
	return judge(ctx, drawn, tests, *n, *workers, *limit)
}

// judge tries mutations until n are judged, and prints each verdict.
func judge(ctx context.Context, drawn []point, tests map[string][]covered, n, workers int, limit time.Duration) error {
	var (
		mu     sync.Mutex
		next   int
		counts = make(map[verdict]int)
		failed error
		wg     sync.WaitGroup
	)
	take := func() (p point, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil || next == len(drawn) || counts[killed]+counts[timeout]+counts[survived] >= n {
			return p, false
		}
		next++
		return drawn[next-1], true
	}
	for range workers {
		wg.Go(func() {
			for p, ok := take(); ok; p, ok = take() {
				v, by, err := try(ctx, ".", p, tests[p.pkg()], limit)
				mu.Lock()
				if err != nil {
					failed = err
				} else {
					counts[v]++
					fmt.Println(v, p, fmt.Sprintf("%q", p.text), by)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	caught := counts[killed] + counts[timeout]
	fmt.Printf("%d of %d caught, %d of these hung; %d did not compile\n", caught, caught+counts[survived], counts[timeout], counts[invalid])
	return failed
}
