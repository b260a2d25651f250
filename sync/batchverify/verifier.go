package batchverify

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
	"github.com/nbd-wtf/go-nostr"
)

// ErrSignature is the verdict on an event with an invalid signature. It equals
// relaysync.ErrSignature.
var ErrSignature = errors.New("invalid signature")

const (
	// maxBatch limits the memory of a call. Larger batches would save little, because most of the
	// cost is one square root per event.
	maxBatch = 1024

	// minBatch is the minimum number of events for an equation, and minPart the minimum in a failed
	// batch.
	minBatch = 4
	minPart  = 8

	// maxKeys is the maximum number of cached public keys of about 200 bytes. A key that is not
	// cached costs one square root per batch.
	maxKeys = 4096
)

// Verifier checks signatures in batches. It is safe for concurrent use, starts no goroutines and
// needs no closing. Make one with [New] and share it, because all callers profit from its cached
// keys.
type Verifier struct {
	keys    keyCache
	account account

	// set by New, read-only
	random func([]byte) // fills a slice with unpredictable bytes

	scratch sync.Pool // of *scratch
}

// New returns a Verifier.
func New() *Verifier { return newVerifier(maxKeys) }

func newVerifier(keys int) *Verifier {
	v := &Verifier{random: func(b []byte) { _, _ = rand.Read(b) }} // crypto/rand never fails
	v.keys.max = keys
	v.account.balance = accountMax
	v.scratch.New = func() any { return new(scratch) }
	return v
}

// scratch is the reused memory of one call.
type scratch struct {
	items []item
	work  []*item
	keys  map[[32]byte]int32 // index of each author in terms
	terms []term
	fresh []byte // random bytes
	multi multiexp
}

// Verify returns a verdict per event, in order: nil, or an error that wraps [ErrSignature]. The
// caller must have verified the id of each event. Verify neither keeps nor changes the events. The
// number of events is not limited.
func (v *Verifier) Verify(events []*nostr.Event) []error {
	verdicts := make([]error, len(events))
	s := v.scratch.Get().(*scratch)
	defer v.scratch.Put(s)
	for start := 0; start < len(events); start += maxBatch {
		end := min(start+maxBatch, len(events))
		v.verify(s, events[start:end], verdicts[start:end])
	}
	return verdicts
}

// verify judges at most maxBatch events.
func (v *Verifier) verify(s *scratch, events []*nostr.Event, verdicts []error) {
	if len(s.items) < len(events) {
		s.items = make([]item, len(events))
	}
	s.work = s.work[:0]
	for i, ev := range events {
		it := &s.items[i]
		if err := it.parse(ev, &v.keys); err != nil {
			verdicts[i] = fmt.Errorf("%w: %w", ErrSignature, err)
			continue
		}
		it.bad = false
		it.verdict = &verdicts[i]
		s.work = append(s.work, it)
	}
	v.judge(s, s.work)
	for _, it := range s.work {
		if it.bad {
			*it.verdict = ErrSignature
		}
		it.verdict = nil // the caller owns the verdicts
	}
}

// judge finds the bad items. A failed batch is divided into parts, and failed parts again. All
// parts of a level are checked before the next level, so that the savings of good parts are known
// before more is spent.
func (v *Verifier) judge(s *scratch, items []*item) {
	spare := len(items) * wasteShare // remaining budget of failed batches
	level := [][]*item{items}
	for depth := 0; len(level) > 0; depth++ {
		var next [][]*item
		for _, part := range level {
			smallest := minPart
			if depth == 0 {
				smallest = minBatch
			}
			cost := 0
			if len(part) >= smallest {
				cost = batchCost(len(part), s.collect(part))
			}
			if cost == 0 || cost >= len(part)*single ||
				depth > 0 && cost > spare || !v.account.covers(cost) {
				v.oneByOne(part)
				continue
			}
			if v.holds(s, part) {
				saved := len(part)*single - cost
				spare += saved
				v.account.add(saved)
				continue
			}
			spare -= cost
			v.account.add(-cost)
			if len(part) < 2*minPart {
				v.oneByOne(part)
				continue
			}
			next = slices.AppendSeq(next, slices.Chunk(part, max(len(part)/parts, minPart)))
		}
		level = next
	}
}

// oneByOne checks each item alone.
func (v *Verifier) oneByOne(items []*item) {
	good := 0
	for _, it := range items {
		it.bad = !it.check()
		if !it.bad {
			good++
		}
	}
	v.account.add(good * singleIncome)
}

// holds evaluates the equation of the batch with new factors. collect was called for the same
// items.
func (v *Verifier) holds(s *scratch, items []*item) bool {
	if size := len(items) * factorSize; cap(s.fresh) < size {
		s.fresh = make([]byte, size)
	}
	fresh := s.fresh[:len(items)*factorSize]
	v.random(fresh)

	var sum, product, a fr.Element
	m := &s.multi
	m.reset()
	for i, it := range items {
		b := int64(binary.LittleEndian.Uint64(fresh[i*factorSize:]))
		c := int64(binary.LittleEndian.Uint64(fresh[i*factorSize+8:]))
		factor(&a, b, c)
		sum.Add(&sum, product.Mul(&a, &it.s))
		t := &s.terms[s.keys[it.author]]
		t.scalar.Add(&t.scalar, product.Mul(&a, &it.e))
		m.addShort(&it.r, b, c)
	}
	for i := range s.terms {
		m.addLong(s.terms[i].key, &s.terms[i].scalar)
	}
	_, generator := secp256k1.Generators()
	m.addLong(&generator, sum.Neg(&sum))
	total := m.sum()
	return total.Z.IsZero() // infinity
}
