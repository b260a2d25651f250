package wstransport

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// flood is what comes without end.
type flood struct{ io.ReadWriteCloser }

func (flood) Read(p []byte) (int, error) { return len(p), nil }

// An honest relay is not hung up, however long it goes on: with pings alone, with short messages, or with long ones that can't be
// compressed. One that sends as much beside that is.
func TestFramingOfHonestRelays(t *testing.T) {
	for name, c := range map[string]struct {
		sends int
		says  func(f *framing)
	}{
		"pings":          {2 + 125, (*framing).control},
		"short messages": {20, func(f *framing) { f.message(); f.text(10) }},
		"empty messages": {2, (*framing).message},
		"long messages":  {5000, func(f *framing) { f.message(); f.text(4000) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := &framing{ReadWriteCloser: flood{}}
			p := make([]byte, c.sends)
			for range 100_000 {
				_, err := f.Read(p)
				require.NoError(t, err)
				c.says(f)
			}
			for sent := 0; sent <= maxEmpty; sent += len(p) {
				_, _ = f.Read(p)
			}
			_, err := f.Read(p)
			require.ErrorIs(t, err, errEmpty)
		})
	}
}
