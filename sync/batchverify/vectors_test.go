package batchverify

import (
	"encoding/csv"
	"encoding/hex"
	"os"
	"strings"
	"testing"

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
			it := item{author: [32]byte(vec.key)}
			err := it.set(new(keyCache), (*[64]byte)(vec.signature), vec.message)
			assert.Equal(t, vec.valid, err == nil && it.check())
		})
	}
}

// Each vector alone in a batch of valid signatures.
func TestVectorsByEquation(t *testing.T) {
	good := signedEvents(7, 3)
	for _, vec := range vectors(t) {
		t.Run(vec.name, func(t *testing.T) {
			v := New()
			items := parsed(t, v, good)
			it := &item{author: [32]byte(vec.key)}
			if err := it.set(&v.keys, (*[64]byte)(vec.signature), vec.message); err != nil {
				assert.False(t, vec.valid)
				return
			}
			items = append(items, it)
			s := new(scratch)
			s.collect(items)
			assert.Equal(t, vec.valid, v.holds(s, items))
			s.collect(items[7:])
			assert.Equal(t, vec.valid, v.holds(s, items[7:]), "alone")
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

// parsed returns the items of events that parse.
func parsed(t testing.TB, v *Verifier, events []*nostr.Event) []*item {
	items := make([]*item, len(events))
	for i, ev := range events {
		items[i] = new(item)
		require.NoError(t, items[i].parse(ev, &v.keys))
	}
	return items
}
