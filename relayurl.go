package graspsync

import (
	"strings"
)

// RelayURL is the URL of a relay in canonical spelling. [ParseRelayURL] makes it. Comparable. The
// zero value stands for a missing relay.
type RelayURL struct {
	url URL
}

// ParseRelayURL reads a ws or wss URL with the rules of [ParseURL]. A URL without a scheme is wss.
// Dial [URL.Written]. All errors wrap [ErrURL].
func ParseRelayURL(s string) (RelayURL, error) {
	u, err := ParseURL(s, RelaySchemes)
	if err != nil {
		return RelayURL{}, err
	}
	return RelayURL{u}, nil
}

// URL returns the URL for a dialer.
func (u RelayURL) URL() URL { return u.url }

func (u RelayURL) String() string { return u.url.String() }

// HostPort returns the host and port that the relay is reached at.
func (u RelayURL) HostPort() HostPort { return u.url.HostPort }

// Path returns the path without a trailing slash, "" for the root.
func (u RelayURL) Path() string { return u.url.Path }

// Plaintext reports whether the relay is reached without TLS (ws).
func (u RelayURL) Plaintext() bool { return u.url.Plaintext() }

// IsZero reports whether u is the zero value.
func (u RelayURL) IsZero() bool { return u == RelayURL{} }

// Compare orders relays by their canonical spelling.
func (u RelayURL) Compare(other RelayURL) int { return strings.Compare(u.String(), other.String()) }

// MarshalText returns the canonical spelling.
func (u RelayURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText is [ParseRelayURL], except that empty text becomes the zero value.
func (u *RelayURL) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*u = RelayURL{}
		return nil
	}
	parsed, err := ParseRelayURL(string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}
