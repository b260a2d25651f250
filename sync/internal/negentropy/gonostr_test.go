package negentropy

import (
	"encoding/hex"
	"sync"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	theirs "github.com/nbd-wtf/go-nostr/nip77/negentropy"
	"github.com/nbd-wtf/go-nostr/nip77/negentropy/storage/vector"
	"github.com/stretchr/testify/require"
)

func goNostrVector(items []Item) *vector.Vector {
	v := vector.New()
	for _, it := range items {
		v.Insert(nostr.Timestamp(it.CreatedAt), hex.EncodeToString(it.ID[:]))
	}
	v.Seal()
	return v
}

// goNostrPeer answers with go-nostr's engine, which khatru relays use.
func goNostrPeer(set *vector.Vector, frameSize int) peer {
	engine := theirs.New(set, frameSize)
	return func(msg []byte) ([]byte, error) {
		reply, err := engine.Reconcile(hex.EncodeToString(msg))
		if err != nil {
			return nil, err
		}
		return hex.DecodeString(reply)
	}
}

// goNostrClient asks with go-nostr's engine.
func goNostrClient(set *vector.Vector, frameSize int, p peer) (need, have [][32]byte, err error) {
	engine := theirs.New(set, frameSize)
	var wg sync.WaitGroup
	collect := func(ids chan string, into *[][32]byte) {
		seen := make(map[string]bool)
		for id := range ids {
			if b, err := hex.DecodeString(id); err == nil && len(b) == 32 && !seen[id] {
				seen[id] = true
				*into = append(*into, [32]byte(b))
			}
		}
	}
	wg.Go(func() { collect(engine.HaveNots, &need) })
	wg.Go(func() { collect(engine.Haves, &have) })
	defer wg.Wait()

	for msg := engine.Start(); msg != ""; {
		var raw, reply []byte
		if raw, err = hex.DecodeString(msg); err == nil {
			if reply, err = p(raw); err == nil {
				msg, err = engine.Reconcile(hex.EncodeToString(reply))
			}
		}
		if err != nil {
			close(engine.HaveNots)
			close(engine.Haves)
			return nil, nil, err
		}
	}
	return need, have, nil
}

func TestNegGoNostrAnswers(t *testing.T) {
	frames := []int{0, 1 << 20, 60_000, 4096}
	for seed := range uint64(1000) {
		r := newRand(seed)
		a, b := randomPair(r, 800)
		l := Limits{MaxRounds: 1000}
		if r.IntN(3) == 0 {
			l.FrameSize = minFrame
		}
		requireExact(t, a, b, l, goNostrPeer(goNostrVector(b), frames[r.IntN(len(frames))]))
	}
}

func TestNegGoNostrAsks(t *testing.T) {
	frames := []int{0, 1 << 20, 60_000, 4096}
	for seed := range uint64(1000) {
		r := newRand(seed)
		a, b := randomPair(r, 800)
		answer := ourPeer(NewSet(b), []int{0, 1 << 30, minFrame}[r.IntN(3)])
		need, have, err := goNostrClient(goNostrVector(a), frames[r.IntN(len(frames))], answer)
		require.NoError(t, err)
		require.Equal(t, without(b, a), nilIfEmpty(sortIDs(need)), seed)
		require.Equal(t, without(a, b), nilIfEmpty(sortIDs(have)), seed)
	}
}
