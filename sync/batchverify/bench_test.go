package batchverify

import (
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// flipSig makes the signature invalid without parse errors: it flips a bit of s.
func flipSig(ev *nostr.Event) *nostr.Event {
	bad := *ev
	last := bad.Sig[127]
	digit := "1032547698badcfe"[hexValue(last)]
	bad.Sig = bad.Sig[:127] + string(digit)
	return &bad
}

func hexValue(c byte) int {
	if c >= 'a' {
		return int(c-'a') + 10
	}
	return int(c - '0')
}

func checkSignatures(events []*nostr.Event) (bad int) {
	for _, ev := range events {
		if ok, err := ev.CheckSignature(); err != nil || !ok {
			bad++
		}
	}
	return bad
}

func BenchmarkVerify(b *testing.B) {
	for _, size := range []int{4, 16, 64, 256, 1024} {
		for _, keys := range []int{50, size} {
			events := signedEvents(size, keys)
			name := fmt.Sprintf("events=%d/keys=%d", size, min(keys, size))
			b.Run(name, func(b *testing.B) {
				v := New()
				require.Zero(b, failures(v.Verify(events)))
				b.ReportAllocs()
				for b.Loop() {
					v.Verify(events)
				}
				perEvent(b, size)
			})
		}
	}
	events := signedEvents(64, 50)
	b.Run("CheckSignature", func(b *testing.B) {
		for b.Loop() {
			checkSignatures(events)
		}
		perEvent(b, 64)
	})
	b.Run("oneByOne", func(b *testing.B) {
		v := New()
		for b.Loop() {
			for i := range events {
				v.Verify(events[i : i+1])
			}
		}
		perEvent(b, 64)
	})
}

// BenchmarkHostile measures the cost of bad signatures.
func BenchmarkHostile(b *testing.B) {
	for _, size := range []int{16, 64, 256} {
		for _, bad := range []int{1, 2, 4, size / 4, size} {
			events := signedEvents(size, 50)
			for i := range bad {
				at := i * size / bad
				events[at] = flipSig(events[at])
			}
			for _, full := range []bool{false, true} {
				b.Run(fmt.Sprintf("events=%d/bad=%d/account=%t", size, bad, full), func(b *testing.B) {
					v := New()
					for b.Loop() {
						if full { // the most expensive state
							v.account.add(accountMax)
						}
						v.Verify(events)
					}
					perEvent(b, size)
				})
			}
		}
	}
}

func perEvent(b *testing.B, size int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(size)/1000, "us/event")
}

func failures(verdicts []error) (n int) {
	for _, err := range verdicts {
		if err != nil {
			n++
		}
	}
	return n
}
