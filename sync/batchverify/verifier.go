package batchverify

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/consensys/gnark-crypto/ecc"
	"github.com/consensys/gnark-crypto/ecc/secp256k1"
	"github.com/consensys/gnark-crypto/ecc/secp256k1/fr"
	"github.com/nbd-wtf/go-nostr"
)

// ErrSignature is the verdict on an event with an invalid signature. It equals
// relaysync.ErrSignature.
var ErrSignature = errors.New("invalid signature")

const (
	maxBatch   = 512 // events per equation; limits the memory of a call
	partSize   = 64  // events of a part of a failed batch
	minBatch   = 8   // fewer events are checked one by one, which is faster
	factorSize = 16  // random bytes of a factor
)

// Verifier checks signatures in batches. [New] makes it. It is safe for concurrent use and needs no
// closing.
type Verifier struct {
	random func([]byte) // fills a slice with unpredictable bytes; only tests change it
}

// New returns a Verifier.
func New() *Verifier {
	return &Verifier{random: func(b []byte) { _, _ = rand.Read(b) }} // crypto/rand never fails
}

// Verify returns a verdict per event, in order: nil, or an error that wraps [ErrSignature]. The
// caller must have verified the id of each event. Ids, keys and signatures must be lower-case hex.
// Verify neither keeps nor changes the events.
func (v *Verifier) Verify(events []*nostr.Event) []error {
	verdicts := make([]error, 0, len(events))
	for batch := range slices.Chunk(events, maxBatch) {
		verdicts = append(verdicts, v.verify(batch)...)
	}
	return verdicts
}

func (v *Verifier) verify(events []*nostr.Event) []error {
	verdicts := make([]error, len(events))
	keys := make(map[string]*secp256k1.G1Affine)
	items := make([]item, 0, len(events))
	for i, ev := range events {
		it := item{verdict: &verdicts[i]}
		if err := it.parse(ev, keys); err != nil {
			verdicts[i] = fmt.Errorf("%w: %w", ErrSignature, err)
			continue
		}
		items = append(items, it)
	}
	if len(items) > partSize && v.hold(items) {
		return verdicts
	}
	for part := range slices.Chunk(items, partSize) {
		if len(part) >= minBatch && v.hold(part) {
			continue
		}
		for i := range part {
			if !part[i].check() {
				*part[i].verdict = ErrSignature
			}
		}
	}
	return verdicts
}

func (v *Verifier) hold(items []item) bool {
	factors := make([]byte, factorSize*len(items))
	v.random(factors)
	points := make([]secp256k1.G1Affine, 0, 2*len(items)+1)
	scalars := make([]fr.Element, 0, 2*len(items)+1)
	add := func(p *secp256k1.G1Affine, k fr.Element) {
		points, scalars = append(points, *p), append(scalars, k)
	}
	terms := make(map[*secp256k1.G1Affine]int) // index of the term of each author
	var ofG, a, product fr.Element
	for i := range items {
		it := &items[i]
		a.SetBytes(factors[i*factorSize:][:factorSize])
		add(&it.r, a)
		ofG.Sub(&ofG, product.Mul(&a, &it.s))
		term, ok := terms[it.key]
		if !ok {
			term = len(points)
			terms[it.key] = term
			add(it.key, fr.Element{})
		}
		scalars[term].Add(&scalars[term], product.Mul(&a, &it.e))
	}
	_, generator := secp256k1.Generators()
	add(&generator, ofG)
	var sum secp256k1.G1Jac
	_, err := sum.MultiExp(points, scalars, ecc.MultiExpConfig{NbTasks: 1})
	return err == nil && sum.Z.IsZero() // the point at infinity
}
