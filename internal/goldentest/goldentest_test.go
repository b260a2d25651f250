package goldentest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func echo(words []string) ([]string, error) {
	if words[0] == "nothing" {
		return nil, nil
	}
	return words, nil
}

func TestPlay(t *testing.T) {
	begun := 0
	Play(t, func(t *testing.T) Player {
		begun++
		return echo
	})
	require.Equal(t, 2, begun, "a player for each script")
}

// Wrong, missing and superfluous output is replaced, and the rest is kept.
func TestOutputIsReplaced(t *testing.T) {
	for _, old := range []string{"> one\n> two\n", "", "> wrong\n", "> one\n> two\n> three\n"} {
		got := play(t, "# why\n\none two\n"+old+"nothing\n", echo)
		require.Equal(t, "# why\n\none two\n> one\n> two\nnothing\n", got)
	}
	require.Equal(t, "a\n> a\n", play(t, strings.TrimSuffix("a\n", "\n"), echo), "a last line without its end")
}
