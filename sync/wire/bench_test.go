package wire_test

import (
	"fmt"
	"strings"

	"github.com/nbd-wtf/go-nostr"
)

// sample returns the frame of an event like those of NIP-34: about 1.2 KB, 8 tags.
func sample() string {
	ev := nostr.Event{
		ID:        strings.Repeat("0123456789abcdef", 4),
		PubKey:    strings.Repeat("fedcba9876543210", 4),
		Sig:       strings.Repeat("0123456789abcdef", 8),
		CreatedAt: 1_750_000_000,
		Kind:      1621,
		Content:   strings.Repeat("The build fails on \"arm64\" since 1.4.2:\n\n\tld: symbol not found\n\n", 6),
	}
	ev.Tags = nostr.Tags{
		{"a", "30617:" + ev.PubKey + ":some-repository"},
		{"p", ev.PubKey},
		{"subject", "Build fails"},
		{"t", "bug"},
		{"t", "build"},
		{"e", ev.ID, "wss://relay.example.com", "root"},
		{"alt", "a git repository issue"},
		{"r", strings.Repeat("ab", 20)},
	}
	return fmt.Sprintf(`["EVENT","sub:12",%s]`, ev.String())
}
