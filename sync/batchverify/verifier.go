package batchverify

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

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

	defaultKeys = 4096
)

// Config of a [Verifier]. The zero value works.
type Config struct {
	// Keys is how many public keys are remembered in decompressed form, about
	// 200 bytes each. A small value costs a square root for each author of a
	// batch, nothing else; a negative one turns the memory off. Defaults to 4096.
	Keys int
}

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
func New(cfg Config) *Verifier {
	if cfg.Keys == 0 {
		cfg.Keys = defaultKeys
	}
	v := &Verifier{random: func(b []byte) { _, _ = rand.Read(b) }} // never fails: crypto/rand
	v.keys.max = max(cfg.Keys, 0)
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
