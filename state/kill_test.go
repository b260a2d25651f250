package state_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
)

const childEnv = "STATE_TEST_CHILD"

// child increments numbers under some keys, two of them always in one batch, and prints each number
// after it is durable. It runs until it is killed.
func child(dir string) {
	s, err := state.Open(dir, state.Config{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	ctx := context.Background()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			key := fmt.Sprint("key", w)
			value, _ := get(ctx, s, key)
			n, _ := strconv.Atoi(strings.TrimLeft(string(value), " "))
			for {
				n++
				padded := fmt.Appendf(nil, "%*d", 3_000, n)
				if err := s.Put(ctx, state.Record{Key: key, Value: padded}, state.Record{Key: "twin of " + key, Value: padded}); err != nil {
					fmt.Println("error", err)
					return
				}
				fmt.Println(key, n)
			}
		})
	}
	wg.Wait()
}

// After a kill all durable batches are stored, no batch is stored partly, and all numbers were
// written.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acked := make(map[string]int)
	for round := range 12 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		var kill *time.Timer
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // a line without its end was not printed
			}
			if kill == nil && (round < 11 || len(acked) == 4) { // the child is running
				kill = time.AfterFunc(time.Duration(round*37%200)*time.Millisecond, func() { _ = cmd.Process.Kill() })
			}
			key, number, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.Atoi(number)
			require.NoError(t, err, line)
			acked[key] = n
		}
		require.Error(t, cmd.Wait())

		s := open(t, dir, state.Config{})
		require.Zero(t, s.Stats().SetAside)
		for key, n := range acked {
			value, err := get(t.Context(), s, key)
			require.NoError(t, err)
			twin, err := get(t.Context(), s, "twin of "+key)
			require.NoError(t, err)
			require.Equal(t, value, twin, "a batch is atomic")
			got, err := strconv.Atoi(strings.TrimLeft(string(value), " "))
			require.NoError(t, err)
			require.GreaterOrEqual(t, got, n, key)
			require.LessOrEqual(t, got, n+1, key)
			acked[key] = got
		}
		require.NoError(t, s.Close())
	}
	require.Len(t, acked, 4)
}
