package batchverify

import (
	"encoding/csv"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type vector struct {
	name         string
	key, message []byte
	signature    []byte
	valid        bool
	event        *nostr.Event // nil unless the message has 32 bytes
}

// vectors reads the vectors published with BIP-340.
func vectors(t testing.TB) (all []vector) {
	file, err := os.Open("testdata/bip340.csv")
	require.NoError(t, err)
	defer func() { assert.NoError(t, file.Close()) }()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	for _, row := range rows[1:] {
		v := vector{name: row[0] + " " + row[5], valid: row[4] == "TRUE"}
		v.key, err = hex.DecodeString(row[1])
		require.NoError(t, err)
		v.message, err = hex.DecodeString(row[2])
		require.NoError(t, err)
		v.signature, err = hex.DecodeString(row[3])
		require.NoError(t, err)
		if len(v.message) == 32 {
			v.event = &nostr.Event{
				ID:     strings.ToLower(row[2]),
				PubKey: strings.ToLower(row[1]),
				Sig:    strings.ToLower(row[3]),
			}
		}
		all = append(all, v)
	}
	return all
}

func TestVectorsOneByOne(t *testing.T) {
	all := vectors(t)
	require.Len(t, all, 19)
	for _, vec := range all {
		t.Run(vec.name, func(t *testing.T) {
			it, ok := vec.item()
			assert.Equal(t, vec.valid, ok && it.check())
		})
	}
}

// Each vector in a batch of valid signatures.
func TestVectorsByEquation(t *testing.T) {
	keys := make(map[string]*secp256k1.G1Affine)
	good := make([]item, 7)
	for i, ev := range signedEvents(len(good), 3) {
		require.NoError(t, good[i].parse(ev, keys))
	}
	for _, vec := range vectors(t) {
		t.Run(vec.name, func(t *testing.T) {
			it, ok := vec.item()
			assert.Equal(t, vec.valid, ok && New().hold(append(slices.Clone(good), it)))
		})
	}
}

// All vectors whose message may be an id, many times in one call.
func TestVectorsInOneCall(t *testing.T) {
	var events []*nostr.Event
	var valid []bool
	for range 10 {
		for _, vec := range vectors(t) {
			if vec.event != nil {
				events = append(events, vec.event)
				valid = append(valid, vec.valid)
			}
		}
	}
	for i, err := range New().Verify(events) {
		if valid[i] {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, err, ErrSignature)
		}
	}
}

// item returns the item of a vector, or false if it does not parse.
func (v vector) item() (it item, ok bool) {
	key, ok := lift([32]byte(v.key))
	it.key = &key
	return it, ok && it.set([32]byte(v.key), [32]byte(v.signature[:32]), [32]byte(v.signature[32:]), v.message) == nil
}
