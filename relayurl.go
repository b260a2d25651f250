package graspsync

import (
	"strings"
)

// RelayURL is the URL of a relay in its one canonical spelling: every spelling of
// a relay gives the same value, so RelayURL works as a map key. The zero value is
// no relay. It is made only by [ParseRelayURL].
type RelayURL struct {
	url URL
}

// ParseRelayURL reads a relay URL as people write it: ws and wss only, a bare
// host means wss. Scheme and host are lower-cased, international host names
// become ASCII, and default port, trailing slash, trailing dot and fragment are
// removed. What is dialed is [URL.Written], which keeps the slash of a path. All errors wrap [ErrURL].
func ParseRelayURL(s string) (RelayURL, error) {
	u, err := ParseURL(s, RelaySchemes)
	if err != nil {
		return RelayURL{}, err
	}
	return RelayURL{u}, nil
}

// URL returns the URL for a dialer.
func (u RelayURL) URL() URL { return u.url }

// String returns the canonical spelling, "" for the zero value.
func (u RelayURL) String() string { return u.url.String() }

// HostPort returns the host and port that the relay is reached at.
func (u RelayURL) HostPort() HostPort { return u.url.HostPort }

// Path returns the path without a trailing slash, "" for the root.
func (u RelayURL) Path() string { return u.url.Path }

// Plaintext reports whether the relay is reached without TLS (ws).
func (u RelayURL) Plaintext() bool { return u.url.Plaintext() }

// IsZero reports whether u is no relay.
func (u RelayURL) IsZero() bool { return u == RelayURL{} }

// Compare orders relays by their canonical spelling.
func (u RelayURL) Compare(other RelayURL) int { return strings.Compare(u.String(), other.String()) }

// MarshalText gives the canonical spelling.
func (u RelayURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads what [ParseRelayURL] reads; empty text is the zero value.
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
