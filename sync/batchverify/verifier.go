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

// ErrSignature is the verdict on an event whose signature is not its author's;
// relaysync.ErrSignature is the same.
var ErrSignature = errors.New("invalid signature")

const (
	// maxBatch bounds the scratch memory of a call. Larger batches would gain
	// little: most of what is left is one square root an event.
	maxBatch = 1024

	// minBatch and minPart are the smallest numbers of events worth an equation
	// of their own: at first, and where one is known to be bad already.
	minBatch = 4
	minPart  = 8

	// maxKeys is how many public keys are remembered in decompressed form, about 200 bytes
	// each. Of one that is not, each batch of its author costs a square root more.
	maxKeys = 4096
)

// Verifier checks signatures in batches. It may be used concurrently, starts no
// goroutines and needs no closing. Make one with [New] and share it: what it
// remembers of keys and of bad batches serves all callers.
type Verifier struct {
	keys    keyCache
	account account

	// set by New, read-only
	random func([]byte) // fills with bytes nobody can predict

	scratch sync.Pool // of *scratch
}

// New returns a Verifier.
func New() *Verifier { return newVerifier(maxKeys) }

func newVerifier(keys int) *Verifier {
	v := &Verifier{random: func(b []byte) { _, _ = rand.Read(b) }} // never fails: crypto/rand
	v.keys.max = keys
	v.account.balance = accountMax
	v.scratch.New = func() any { return new(scratch) }
	return v
}

// scratch is the memory of one call, reused to spare the garbage collector.
type scratch struct {
	items []item
	work  []*item
	keys  map[[32]byte]int32 // authors of a batch -> place in its terms
	terms []term
	fresh []byte // random bytes
	multi multiexp
}

// Verify returns a verdict for each event, in order: nil, or an error that wraps
// [ErrSignature]. The id of each event has to be checked already. It
// neither keeps nor changes the events. Any number of events may be given.
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

// judge decides which of the items are bad. A batch that fails is cut into a few
// parts, and so on. It goes through them level by level, so that what good parts
// save is known before more is spent on others.
func (v *Verifier) judge(s *scratch, items []*item) {
	spare := len(items) * wasteShare // what this call may still waste
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

// oneByOne judges each item by itself.
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

// holds evaluates the equation of the batch with fresh factors. The authors were
// collected right before.
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
