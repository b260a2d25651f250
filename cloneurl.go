package graspsync

import "strings"

// CloneURL is where a repository can be fetched from over smart HTTP, in its one canonical
// spelling, so CloneURL works as a map key. The zero value is none. It is made only by
// [ParseCloneURL].
type CloneURL struct {
	url URL
}

// ParseCloneURL reads a clone URL as an announcement lists it: http and https only. What
// [ParseURL] says of spellings holds. All errors wrap [ErrURL].
func ParseCloneURL(s string) (CloneURL, error) {
	u, err := ParseURL(s, HTTPSchemes)
	if err != nil {
		return CloneURL{}, err
	}
	return CloneURL{u}, nil
}

// URL returns the URL for a client.
func (u CloneURL) URL() URL { return u.url }

// String returns the canonical spelling, "" for the zero value.
func (u CloneURL) String() string { return u.url.String() }

// HostPort returns the host and port of the server.
func (u CloneURL) HostPort() HostPort { return u.url.HostPort }

// Path returns the path without a trailing slash, "" for the root.
func (u CloneURL) Path() string { return u.url.Path }

// Plaintext reports whether the server is reached without TLS (http).
func (u CloneURL) Plaintext() bool { return u.url.Plaintext() }

// IsZero reports whether u is no clone URL.
func (u CloneURL) IsZero() bool { return u == CloneURL{} }

// Compare orders clone URLs by their canonical spelling.
func (u CloneURL) Compare(other CloneURL) int { return strings.Compare(u.String(), other.String()) }

// MarshalText gives the canonical spelling.
func (u CloneURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText reads what [ParseCloneURL] reads; empty text is the zero value.
func (u *CloneURL) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*u = CloneURL{}
		return nil
	}
	parsed, err := ParseCloneURL(string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}
