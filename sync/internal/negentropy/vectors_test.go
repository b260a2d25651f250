package negentropy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testdata/vectors.py, an independent implementation, made the files in testdata.

type vectorFile[T any] struct {
	Sets  map[string]vectorSet
	Cases []T
}

func loadVectors[T any](t *testing.T, name string) vectorFile[T] {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	var f vectorFile[T]
	require.NoError(t, json.Unmarshal(data, &f))
	require.NotEmpty(t, f.Cases)
	return f
}

type vectorSet struct {
	Items  [][2]any
	Groups []struct {
		Label    string
		From, To int
		Base     uint64
		Every    int
	}
}

// UnmarshalJSON keeps the precision of 64-bit numbers.
func (v *vectorSet) UnmarshalJSON(data []byte) error {
	type plain vectorSet
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	return d.Decode((*plain)(v))
}

func (v vectorSet) set(t *testing.T) *Set {
	t.Helper()
	var items []Item
	for _, pair := range v.Items {
		at, err := strconv.ParseUint(string(pair[0].(json.Number)), 10, 64)
		require.NoError(t, err)
		items = append(items, Item{at, [32]byte(unhex(t, pair[1].(string)))})
	}
	for _, g := range v.Groups {
		for i := g.From; i < g.To; i++ {
			id := sha256.Sum256(fmt.Appendf(nil, "%s-%d", g.Label, i))
			items = append(items, Item{g.Base + uint64(i/g.Every), id})
		}
	}
	return NewSet(items)
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// Without a frame limit both implementations write the same bytes.
func TestVectorsTranscript(t *testing.T) {
	f := loadVectors[struct {
		Client, Server string
		Messages       []string
		Have, Need     string
	}](t, "transcript.json")
	for _, c := range f.Cases {
		name := c.Client + " / " + c.Server
		client := NewSession(f.Sets[c.Client].set(t), Limits{FrameSize: 1 << 30})
		server := f.Sets[c.Server].set(t)

		msg, err := client.Open()
		require.NoError(t, err)
		for i, want := range c.Messages {
			if i > 0 && i%2 == 0 {
				var done bool
				msg, done, err = client.Step(msg)
				require.NoError(t, err, name)
				require.Equal(t, want == "61", done, name)
				if done {
					break
				}
			} else if i%2 == 1 {
				msg, err = Answer(server, msg, 1<<30)
				require.NoError(t, err, name)
			}
			got := hex.EncodeToString(msg)
			if strings.HasPrefix(want, "sha256:") {
				got = fmt.Sprintf("sha256:%x", sha256.Sum256(msg))
			}
			require.Equal(t, want, got, "%s, message %d", name, i)
		}
		require.Equal(t, c.Have, digestOf(client.Have()), name)
		require.Equal(t, c.Need, digestOf(client.Need()), name)
	}
}

func digestOf(ids [][32]byte) string {
	h := sha256.New()
	for _, id := range sortIDs(ids) {
		h.Write(id[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
