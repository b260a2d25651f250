package graspsync

import "strings"

// RelayURL is the URL of a relay in canonical spelling. [ParseRelayURL] makes it. Comparable. The
// zero value stands for a missing relay.
type RelayURL struct{ serverURL }

// ParseRelayURL reads a ws or wss URL with the rules of [ParseURL]. A URL without a scheme is wss.
// Dial [URL.AsWritten]. All errors wrap [ErrURL].
func ParseRelayURL(s string) (RelayURL, error) {
	u, err := ParseURL(s, RelaySchemes)
	return RelayURL{serverURL{u}}, err
}

// Compare orders relays by their canonical spelling.
func (u RelayURL) Compare(other RelayURL) int { return strings.Compare(u.String(), other.String()) }

// UnmarshalText is [ParseRelayURL], except that empty text becomes the zero value.
func (u *RelayURL) UnmarshalText(text []byte) error { return u.unmarshal(text, RelaySchemes) }

// CloneURL is the smart HTTP URL of a repository in canonical spelling. [ParseCloneURL] makes it.
// Comparable. The zero value stands for a missing URL.
type CloneURL struct{ serverURL }

// ParseCloneURL reads an http or https URL with the rules of [ParseURL]. All errors wrap [ErrURL].
func ParseCloneURL(s string) (CloneURL, error) {
	u, err := ParseURL(s, HTTPSchemes)
	return CloneURL{serverURL{u}}, err
}

// Compare orders clone URLs by their canonical spelling.
func (u CloneURL) Compare(other CloneURL) int { return strings.Compare(u.String(), other.String()) }

// UnmarshalText is [ParseCloneURL], except that empty text becomes the zero value.
func (u *CloneURL) UnmarshalText(text []byte) error { return u.unmarshal(text, HTTPSchemes) }

// serverURL contains the methods of both kinds of URLs.
type serverURL struct{ url URL }

// URL returns the URL for a client.
func (l serverURL) URL() URL { return l.url }

func (l serverURL) String() string { return l.url.String() }

// HostPort returns the host and port of the server.
func (l serverURL) HostPort() HostPort { return l.url.HostPort }

// Path returns the path without a trailing slash, "" for the root.
func (l serverURL) Path() string { return l.url.Path }

// Plaintext reports whether the server is reached without TLS.
func (l serverURL) Plaintext() bool { return l.url.Plaintext() }

// IsZero reports whether the URL is missing.
func (l serverURL) IsZero() bool { return l == serverURL{} }

// MarshalText returns the canonical spelling.
func (l serverURL) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

func (l *serverURL) unmarshal(text []byte, schemes []string) error {
	if len(text) == 0 {
		*l = serverURL{}
		return nil
	}
	u, err := ParseURL(string(text), schemes)
	if err == nil {
		l.url = u
	}
	return err
}
