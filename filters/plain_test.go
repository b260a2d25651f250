package filters

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Strings of which eight bytes are looked at at once have the size that is written, whatever
// byte is where.
func TestSizeOfStrings(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for c := range 256 {
		for at := range 20 {
			s := []byte("abcdefghijklmnopqrst")
			s[at] = byte(c)
			if other := rng.IntN(20); rng.IntN(2) == 0 {
				s[other] = byte(rng.UintN(256))
			}
			slow := 2
			for i := 0; i < len(s); {
				n := 1
				for n < 4 && i+n < len(s) && s[i+n]&0xc0 == 0x80 {
					n++
				}
				slow += sizeString(string(s[i:i+n])) - 2
				i += n
			}
			require.Equal(t, slow, sizeString(string(s)), "%q", s)
			require.Equal(t, c >= ' ' && c < 0x80 && c != '"' && c != '\\', plain(string([]byte{'a', 'b', 'c', byte(c), 'e', 'f', 'g', 'h'})))
		}
	}
	long, _ := json.Marshal("0123456789abcdef0123456789abcdef")
	require.Equal(t, len(long), sizeString("0123456789abcdef0123456789abcdef"))
}
