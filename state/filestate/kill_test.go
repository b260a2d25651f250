package filestate

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
)

const childEnv = "FILESTATE_TEST_CHILD"

// child counts up under some keys, and says each number once it is acknowledged,
// until it is killed.
func child(dir string) {
	s, err := Open(dir, Config{})
	if err != nil {
		fmt.Println("error", err)
		return
	}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			key := fmt.Sprint("key", w)
			value, version, _ := s.Get(context.Background(), key)
			n, _ := strconv.Atoi(strings.TrimLeft(string(value), " "))
			for {
				n++
				padded := fmt.Sprintf("%*d", 3_000, n) // so that logs are compacted
				if version, err = s.CompareAndSwap(context.Background(), key, version, []byte(padded)); err != nil {
					fmt.Println("error", err)
					return
				}
				fmt.Println(key, n)
			}
		})
	}
	wg.Wait()
}

// Whatever a process that is killed had been told to be written is there, and no
// number that it did not try to write.
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
				break // what has no end of line was not said
			}
			if kill == nil { // it is at work
				kill = time.AfterFunc(time.Duration(round*37%200)*time.Millisecond, func() { _ = cmd.Process.Kill() })
			}
			key, number, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.Atoi(number)
			require.NoError(t, err, line)
			acked[key] = n
		}
		require.Error(t, cmd.Wait())

		s := openDir(t, dir, Config{})
		require.Zero(t, s.Stats().SetAside)
		for key, n := range acked {
			value, _, err := s.Get(t.Context(), key)
			require.NoError(t, err)
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
