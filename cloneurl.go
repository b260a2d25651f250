package graspsync

import "strings"

// CloneURL is the smart HTTP URL of a repository in canonical spelling. [ParseCloneURL] makes it.
// Comparable. The zero value stands for a missing URL.
type CloneURL struct {
	url URL
}

// ParseCloneURL reads an http or https URL with the rules of [ParseURL]. All errors wrap [ErrURL].
func ParseCloneURL(s string) (CloneURL, error) {
	u, err := ParseURL(s, HTTPSchemes)
	if err != nil {
		return CloneURL{}, err
	}
	return CloneURL{u}, nil
}

// URL returns the URL for a client.
func (u CloneURL) URL() URL { return u.url }

func (u CloneURL) String() string { return u.url.String() }

// HostPort returns the host and port of the server.
func (u CloneURL) HostPort() HostPort { return u.url.HostPort }

// Path returns the path without a trailing slash, "" for the root.
func (u CloneURL) Path() string { return u.url.Path }

// Plaintext reports whether the server is reached without TLS (http).
func (u CloneURL) Plaintext() bool { return u.url.Plaintext() }

// IsZero reports whether u is the zero value.
func (u CloneURL) IsZero() bool { return u == CloneURL{} }

// Compare orders clone URLs by their canonical spelling.
func (u CloneURL) Compare(other CloneURL) int { return strings.Compare(u.String(), other.String()) }

// MarshalText returns the canonical spelling.
func (u CloneURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText is [ParseCloneURL], except that empty text becomes the zero value.
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
