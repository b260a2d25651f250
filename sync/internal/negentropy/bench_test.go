package negentropy

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchPair returns two sets of n items in random order with d scattered differences, half on
// either side.
func benchPair(n, d int) (a, b []Item) {
	r := newRand(5)
	at := func() uint64 { return 1_700_000_000 + r.Uint64N(uint64(n)) }
	for range n - d/2 {
		a = append(a, Item{at(), randomID(r)})
	}
	b = append(b, a...)
	for range d / 2 {
		a = append(a, Item{at(), randomID(r)})
		b = append(b, Item{at(), randomID(r)})
	}
	for _, s := range [][]Item{a, b} {
		r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	}
	return a, b
}

var benchSizes = []int{100_000, 1_000_000}

func BenchmarkNewSet(b *testing.B) {
	for _, n := range benchSizes {
		items, _ := benchPair(n, 0)
		b.Run(fmt.Sprintf("random/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewSet(items)
			}
		})
		sorted := sortedItems(items)
		newest := slices.Clone(sorted)
		slices.Reverse(newest)
		b.Run(fmt.Sprintf("newest/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewSet(newest)
			}
		})
		b.Run(fmt.Sprintf("sorted/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				NewSet(sorted)
			}
		})
		b.Run(fmt.Sprintf("gonostr/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				goNostrVector(items)
			}
		})
	}
}

// sortedItems returns the items in the order of the protocol.
func sortedItems(items []Item) []Item {
	s := NewSet(items)
	sorted := make([]Item, s.Len())
	for i := range sorted {
		sorted[i] = Item{s.times[i], s.ids[i]}
	}
	return sorted
}

// BenchmarkOurSide measures the asking side with recorded answers. They fit because our messages
// are always the same.
func BenchmarkOurSide(b *testing.B) {
	const differences = 10_000
	for _, n := range benchSizes {
		ours, theirs := benchPair(n, differences)
		a, c := NewSet(ours), NewSet(theirs)
		b.Run(fmt.Sprintf("ours/%d", n), func(b *testing.B) {
			var answers [][]byte
			record := func(msg []byte) ([]byte, error) {
				answer, err := ourPeer(c, 500_000)(msg)
				answers = append(answers, answer)
				return answer, err
			}
			_, err := reconcile(NewSession(a, Limits{}), record)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				s, next := NewSession(a, Limits{}), 0
				_, err := reconcile(s, func([]byte) ([]byte, error) {
					next++
					return answers[next-1], nil
				})
				require.NoError(b, err)
				require.Len(b, s.Need(), differences/2)
				require.Len(b, s.Have(), differences/2)
			}
			b.ReportMetric(float64(len(answers)), "rounds")
		})
	}
}
