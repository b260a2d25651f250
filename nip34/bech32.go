package nip34

import (
	"errors"
	"strings"
)

// errBech32 is what is wrong with a text that is none of NIP-19.
var errBech32 = errors.New("malformed, or mistyped: its checksum is wrong")

// maxBech32 is the longest of NIP-19 that is read, in characters: an naddr with the longest
// identifier and a few relays has less than half of that.
const maxBech32 = 2048

// decodeBech32 reads what NIP-19 has: bech32 (BIP-173) of any length. The library for that ends
// the process with some that are malformed.
func decodeBech32(s string) (prefix string, data []byte, err error) {
	if lower := strings.ToLower(s); s == strings.ToUpper(s) {
		s = lower // BIP-173 has either case, and no mixture
	}
	at := strings.LastIndexByte(s, '1')
	if at < 1 || len(s) > maxBech32 || len(s)-at-1 < 6 {
		return "", nil, errBech32
	}
	prefix = s[:at]
	groups := make([]byte, 0, len(s)-at-1)
	for _, c := range []byte(s[at+1:]) {
		group := strings.IndexByte(charset, c)
		if group < 0 {
			return "", nil, errBech32
		}
		groups = append(groups, byte(group)) //nolint:gosec // less than 32
	}
	if sum := checksumOf(prefix, groups); sum.value != 1 {
		return "", nil, errBech32
	}
	data, ok := bytesOf(groups[:len(groups)-6])
	if !ok {
		return "", nil, errBech32
	}
	return prefix, data, nil
}

// bytesOf joins groups of five bits; what is left over must be zero, and less than a group.
func bytesOf(groups []byte) (out []byte, ok bool) {
	var bits, n uint
	for _, g := range groups {
		if bits, n = bits<<5|uint(g), n+5; n >= 8 {
			n -= 8
			out = append(out, byte(bits>>n)) //nolint:gosec // the lowest eight bits
			bits &= 1<<n - 1
		}
	}
	return out, n < 5 && bits == 0
}

// The entries of an nevent and an naddr (NIP-19) that count.
const (
	tlvSpecial = 0 // the id, or the identifier
	tlvAuthor  = 2
	tlvKind    = 3
)

// entries returns the first of each entry of an nevent or naddr, in order of their types.
// What comes after one that is cut off does not count.
func entries(data []byte) map[byte][]byte {
	out := make(map[byte][]byte)
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		of, value := data[0], data[2:2+int(data[1])]
		if _, again := out[of]; !again {
			out[of] = value
		}
		data = data[2+len(value):]
	}
	return out
}
