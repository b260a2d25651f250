package nip34

import (
	"errors"

	"github.com/btcsuite/btcd/btcutil/bech32"
)

// errBech32 is what is wrong with a text that is none of NIP-19.
var errBech32 = errors.New("malformed, or mistyped: its checksum is wrong")

// maxBech32 is the longest of NIP-19 that is read, in characters: an naddr with the longest
// identifier and a few relays has less than half of that.
const maxBech32 = 2048

// decodeBech32 reads what NIP-19 has: bech32 (BIP-173) of any length.
func decodeBech32(s string) (prefix string, data []byte, err error) {
	if len(s) > maxBech32 {
		return "", nil, errBech32
	}
	prefix, groups, err := bech32.DecodeNoLimit(s)
	if err != nil {
		return "", nil, errBech32
	}
	if data, err = bech32.ConvertBits(groups, 5, 8, false); err != nil {
		return "", nil, errBech32
	}
	return prefix, data, nil
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
