package batchverify

import (
	"github.com/nbd-wtf/go-nostr"
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

func failures(verdicts []error) (n int) {
	for _, err := range verdicts {
		if err != nil {
			n++
		}
	}
	return n
}
