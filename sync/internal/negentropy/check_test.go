package negentropy

import (
	"encoding/hex"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	gonostr "github.com/nbd-wtf/go-nostr/nip77/negentropy"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy/storage/vector"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	set := NewSet(nil)
	open, err := NewSession(set, Limits{}).Open()
	require.NoError(t, err)
	for text, good := range map[string]bool{
		hex.EncodeToString(open):            true,
		"61":                                true,
		"":                                  false,
		"62":                                true,  // the answer is our version
		"610081ffffffffffffffff7f00":        false, // a prefix of -1 bytes
		"61000002c0808000":                  false, // 2^27 ids
		"61ffffffffffffff7f0000":            true,  // 2^56-2 s
		"6181808080808080800000" + "000000": false, // 2^56-1+1 s
		"61000002":                          false,
		"61000000" + "00":                   false,
	} {
		msg, err := hex.DecodeString(text)
		require.NoError(t, err)
		if good {
			require.NoError(t, Check(msg), text)
		} else {
			require.ErrorIs(t, Check(msg), ErrProtocol, text)
		}
	}
}

// A message that passes Check does not crash a relay that decodes with go-nostr.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		"61", "6100000200", "610081ffffffffffffffff7f00", "61000002c0808000", "61ffffffffffffff7f000000",
		"6186abcdef000201" + "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff" + "000000",
	} {
		msg, err := hex.DecodeString(seed)
		require.NoError(f, err)
		f.Add(msg)
	}
	vec := vector.New()
	for i := range 100 {
		vec.Insert(nostr.Timestamp(1_700_000_000+i), hex.EncodeToString(append([]byte{byte(i)}, make([]byte, 31)...)))
	}
	vec.Seal()
	f.Fuzz(func(t *testing.T, msg []byte) {
		if len(msg) > 5000 || Check(msg) != nil {
			return
		}
		_, _ = gonostr.New(vec, 1<<20).Reconcile(hex.EncodeToString(msg)) // must not panic
	})
}
