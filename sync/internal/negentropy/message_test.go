package negentropy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// message concatenates hex and ignores spaces.
func message(t *testing.T, parts ...string) []byte {
	t.Helper()
	return unhex(t, strings.ReplaceAll(strings.Join(parts, ""), " ", ""))
}

const fp16 = "000102030405060708090a0b0c0d0e0f"

var brokenMessages = []struct{ name, hex, want string }{
	{"empty", "", "empty message"},
	{"not a version", "11", "isn't a version"},
	{"text", "5b", "isn't a version"},
	{"timestamp cut short", "61 80", "timestamp cut short"},
	{"timestamp of eleven digits", "61 80 80 80 80 80 80 80 80 80 80 01 00 00", "timestamp overflows"},
	{"timestamp of 65 bits", "61 82 80 80 80 80 80 80 80 80 00 00 00", "timestamp overflows"},
	{"endless digits", "61" + strings.Repeat("ff", 40), "timestamp overflows"},
	{"offsets that overflow", "61 81ffffffffffffffff7e 00 00  05 00 00", "timestamp overflows"},
	{"the reserved timestamp", "61 81ffffffffffffffff7f 00 00  02 00 00", "timestamp overflows"},
	{"no prefix length", "61 05", "length of an id prefix cut short"},
	{"prefix of 33 bytes", "61 05 21" + strings.Repeat("00", 40), "id prefix of 33 bytes"},
	{"prefix of 2^64-1 bytes", "61 05 81ffffffffffffffff7f", "id prefix of 18446744073709551615 bytes"},
	{"prefix cut short", "61 05 20 0102", "id prefix cut short"},
	{"infinity with a prefix", "61 00 01 ff 00", "id prefix of 1 bytes"},
	{"no mode", "61 05 00", "mode cut short"},
	{"unknown mode", "61 05 00 03", "unknown mode 3"},
	{"mode of 2^63", "61 05 00 81808080808080808000", "unknown mode"},
	{"fingerprint cut short", "61 00 00 01" + fp16[:30], "fingerprint cut short"},
	{"no count", "61 00 00 02", "number of ids cut short"},
	{"an id cut short", "61 00 00 02 01" + strings.Repeat("ab", 31), "1 ids in 31 bytes"},
	{"a count of 2^27", "61 00 00 02 c0808000", "134217728 ids in 0 bytes"},
	{"a count of 2^64-1", "61 00 00 02 81ffffffffffffffff7f", "18446744073709551615 ids in 0 bytes"},
	{"a count that times 32 is 0", "61 00 00 02 888080808080808000", "ids in 0 bytes"},
	{"a bound twice", "61 05 00 00  01 00 00", "bounds don't increase"},
	{"the beginning", "61 01 00 00", "bounds don't increase"},
	{"a smaller prefix", "61 05 02 0102 00  01 02 0101 00", "bounds don't increase"},
	{"the same prefix with zeros", "61 05 01 01 00  01 02 0100 00", "bounds don't increase"},
	{"a finite bound after infinity", "61 00 00 00  01 00 00", "timestamp overflows"},
	{"ids beyond infinity", "61 00 00 00  00 00 02 01" + strings.Repeat("ab", 32), "ids beyond infinity"},
	{"infinity three times", "61 00 00 00  00 00 00  00 00 00", "3 bytes after the last range"},
	{"trailing byte", "61 00 00 00  00 00 00  07", "1 bytes after the last range"},
	{"broken after good ranges", "61 02 00 01" + fp16 + "05 00 02 00 00 00 09", "unknown mode 9"},
}

func TestBrokenMessages(t *testing.T) {
	set := NewSet(numbered(100, func(i int) uint64 { return uint64(i) }))
	for _, tt := range brokenMessages {
		t.Run(tt.name, func(t *testing.T) {
			msg := message(t, tt.hex)
			reply, err := Answer(set, msg, 0)
			require.ErrorIs(t, err, ErrProtocol)
			require.ErrorContains(t, err, tt.want)
			require.Nil(t, reply)

			s := NewSession(set, Limits{})
			_, err = s.Open()
			require.NoError(t, err)
			reply, done, err := s.Step(msg)
			require.ErrorIs(t, err, ErrProtocol)
			require.ErrorContains(t, err, tt.want)
			require.Nil(t, reply)
			require.False(t, done)
		})
	}
}
