package batchverify

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

// twin is the single check by another implementation over the event's id.
func twin(ev *nostr.Event) bool {
	var fields [3][]byte
	for i, text := range []string{ev.ID, ev.PubKey, ev.Sig} {
		data, err := hex.DecodeString(text)
		if err != nil || text != strings.ToLower(text) {
			return false
		}
		fields[i] = data
	}
	if len(fields[0]) != 32 {
		return false
	}
	key, err := schnorr.ParsePubKey(fields[1])
	if err != nil {
		return false
	}
	sig, err := schnorr.ParseSignature(fields[2])
	return err == nil && sig.Verify(fields[0], key)
}

// agree compares every verdict with the twin.
func agree(t testing.TB, v *Verifier, events []*nostr.Event, known map[*nostr.Event]bool) {
	t.Helper()
	verdicts := v.Verify(events)
	require.Len(t, verdicts, len(events))
	for i, ev := range events {
		want, ok := known[ev]
		if !ok {
			want = twin(ev)
		}
		if want {
			require.NoError(t, verdicts[i], "event %d of %d", i, len(events))
		} else {
			require.ErrorIs(t, verdicts[i], ErrSignature, "event %d of %d", i, len(events))
		}
	}
}

// flipBit flips a bit in a range of hex bytes.
func flipBit(rng *rand.Rand, text string, from, to int) string {
	data, _ := hex.DecodeString(text)
	data[from+rng.IntN(to-from)] ^= 1 << rng.IntN(8)
	return hex.EncodeToString(data)
}

// spoil replaces one or two events by invalid copies.
func spoil(rng *rand.Rand, events []*nostr.Event, at int) {
	bad := *events[at]
	other := rng.IntN(len(events))
	if _, err := hex.DecodeString(bad.Sig); err != nil || len(bad.Sig) != 128 {
		return // already invalid
	}
	switch rng.IntN(9) {
	case 0:
		bad.Sig = flipBit(rng, bad.Sig, 0, 32)
	case 1:
		bad.Sig = flipBit(rng, bad.Sig, 32, 64)
	case 2:
		bad.PubKey = flipBit(rng, bad.PubKey, 0, 32)
	case 3:
		bad.ID = flipBit(rng, bad.ID, 0, 32)
	case 4: // swapped signatures
		swapped := *events[other]
		bad.Sig, swapped.Sig = swapped.Sig, bad.Sig
		events[other] = &swapped
	case 5: // a duplicate
		events[at] = events[other]
		return
	case 6: // negated s
		var s fr.Element
		data, _ := hex.DecodeString(bad.Sig)
		s.SetBytes(data[32:])
		negated := s.Neg(&s).Bytes()
		bad.Sig = hex.EncodeToString(append(data[:32], negated[:]...))
	case 7:
		texts := []string{"", "zz", strings.Repeat("f", 128), strings.ToUpper(bad.Sig), bad.Sig[:127] + "g", bad.Sig + "00"}
		bad.Sig = texts[rng.IntN(len(texts))]
	case 8:
		cancel(events, at, other)
		return
	}
	events[at] = &bad
}

// cancel makes two signatures invalid so that their errors cancel.
func cancel(events []*nostr.Event, i, j int) {
	first, second := *events[i], *events[j]
	if _, err := hex.DecodeString(second.Sig); err != nil || i == j || len(second.Sig) != 128 {
		return
	}
	shift := func(text string, negative bool) string {
		data, _ := hex.DecodeString(text)
		var s, d fr.Element
		s.SetBytes(data[32:])
		d.SetInt64(12345)
		if negative {
			d.Neg(&d)
		}
		sum := s.Add(&s, &d).Bytes()
		return hex.EncodeToString(append(data[:32], sum[:]...))
	}
	first.Sig, second.Sig = shift(first.Sig, false), shift(second.Sig, true)
	events[i], events[j] = &first, &second
}

// The twin is slow, so it judges unchanged events only once.
func TestAgreesWithSingleChecks(t *testing.T) {
	racetest.Amounts(t)
	const pool, batches = 100, 1000
	for _, authors := range []int{7, pool} {
		rng := rand.New(rand.NewPCG(1, uint64(authors)))
		all := signedEvents(pool, authors)
		known := make(map[*nostr.Event]bool)
		for _, ev := range all {
			known[ev] = twin(ev)
			require.True(t, known[ev])
		}
		v := New()
		for range batches / 2 {
			size := 1 + rng.IntN(30)
			if rng.IntN(12) == 0 {
				size = 1 + rng.IntN(300)
			}
			events := make([]*nostr.Event, size)
			for i := range events {
				events[i] = all[rng.IntN(pool)]
			}
			bad := rng.IntN(4)
			if rng.IntN(10) == 0 {
				bad = rng.IntN(size + 1)
			}
			for range bad {
				spoil(rng, events, rng.IntN(size))
			}
			if rng.IntN(50) == 0 {
				for i := range events {
					spoil(rng, events, i)
				}
			}
			agree(t, v, events, known)
		}
	}
}

// With equal or predictable factors, batch verification would accept signatures crafted to cancel.
// The first half of the test shows that these signatures cancel for known factors.
func TestCancellingSignaturesAreRefused(t *testing.T) {
	events := signedEvents(16, 4)
	cancel(events, 3, 11)
	require.False(t, twin(events[3]))

	naive := New()
	naive.random = func(b []byte) {
		clear(b)
		for i := 0; i < len(b); i += factorSize {
			b[i] = 1
		}
	}
	require.Zero(t, failures(naive.Verify(events)), "the pair has to be a real attack")

	v := New()
	for range 10 {
		verdicts := v.Verify(events)
		require.Equal(t, 2, failures(verdicts))
		require.Error(t, verdicts[3])
		require.Error(t, verdicts[11])
	}
}

// Factors must be new in each batch and each part, because a sender may learn from the duration of
// a call.
func TestFactorsAreFresh(t *testing.T) {
	v := New()
	seen := make(map[[factorSize]byte]bool)
	random, calls := v.random, 0
	v.random = func(b []byte) {
		calls++
		random(b)
		for ; len(b) > 0; b = b[factorSize:] {
			factor := [factorSize]byte(b)
			require.False(t, seen[factor])
			seen[factor] = true
		}
	}
	events := signedEvents(100, 3)
	v.Verify(events)
	v.Verify(events)
	require.Equal(t, 2, calls)
	require.Len(t, seen, 200)
	events[5] = flipSig(events[5])
	v.Verify(events)
	require.Greater(t, calls, 3, "parts of the bad batch")
}

// The equations of a call cover each event at most twice, so that hostile input costs little more
// than single checks.
func TestHostileInputIsBounded(t *testing.T) {
	for _, every := range []int{1, partSize, 300} {
		events := signedEvents(maxBatch, 5)
		for i := 0; i < len(events); i += every {
			events[i] = flipSig(events[i])
		}
		v := New()
		random, factors := v.random, 0
		v.random = func(b []byte) {
			factors += len(b) / factorSize
			random(b)
		}
		assert.Equal(t, (maxBatch+every-1)/every, failures(v.Verify(events)))
		assert.LessOrEqual(t, factors, 2*maxBatch)
	}
}

func TestConcurrentUse(t *testing.T) {
	v := New()
	events := signedEvents(40, 30)
	events[17] = flipSig(events[17])
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				verdicts := v.Verify(events)
				assert.Equal(t, 1, failures(verdicts))
				assert.Error(t, verdicts[17])
			}
		})
	}
	wg.Wait()
}

// FuzzVerify makes a batch of good events, overwrites bytes of some as the input says, and compares
// with the twin.
func FuzzVerify(f *testing.F) {
	good := signedEvents(40, 6)
	known := make(map[*nostr.Event]bool)
	for _, ev := range good {
		known[ev] = true
	}
	f.Add([]byte{})
	f.Add([]byte{0, 1, 2, 3})
	f.Add([]byte("\x05\x21\x07\xff\x06\x21\x07\x00\x07\x61\x01\x80"))
	f.Fuzz(func(t *testing.T, data []byte) {
		events := append([]*nostr.Event(nil), good...)
		for ; len(data) >= 4; data = data[4:] {
			at := int(data[0]) % len(events)
			ev := *events[at]
			raw, err := hex.DecodeString(ev.ID + ev.PubKey + ev.Sig)
			require.NoError(t, err)
			place := int(data[1]) % len(raw)
			switch data[2] % 4 {
			case 0:
				raw[place] = data[3]
			case 1:
				raw[place] ^= data[3]
			case 2: // a whole field of another event
				other, err := hex.DecodeString(good[int(data[3])%len(good)].Sig)
				require.NoError(t, err)
				copy(raw[64+place%2*32:], other[:32])
			case 3: // move 32 bits of s
				word := raw[len(raw)-4:]
				binary.BigEndian.PutUint32(word, binary.BigEndian.Uint32(word)+uint32(data[3]))
			}
			text := hex.EncodeToString(raw)
			ev.ID, ev.PubKey, ev.Sig = text[:64], text[64:128], text[128:]
			events[at] = &ev
		}
		agree(t, New(), events, known)
	})
}

// flipSig makes the signature invalid without parse errors: it flips a bit of s.
func flipSig(ev *nostr.Event) *nostr.Event {
	bad := *ev
	data, _ := hex.DecodeString(bad.Sig)
	data[63] ^= 1
	bad.Sig = hex.EncodeToString(data)
	return &bad
}

func failures(verdicts []error) (n int) {
	for _, err := range verdicts {
		if err != nil {
			n++
		}
	}
	return n
}
