package graspsync

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// MaxURLLength is the maximum length of a URL, as written and in canonical spelling, in bytes.
const MaxURLLength = 2048

// maxQuoted is the maximum length of a quoted part of a URL in an error, in bytes.
const maxQuoted = 100

// ErrURL is wrapped by all errors of [ParseURL].
var ErrURL = errors.New("unusable URL")

// URL is a URL in canonical spelling, without user name and password. [ParseURL] makes it.
// Comparable. The zero value stands for a missing URL.
type URL struct {
	Scheme   string // as given to ParseURL, lower-case
	HostPort HostPort
	Path     string // "" or starts with "/"; never ends in "/"; ASCII, percent-encoded where needed
	Query    string // without "?"; ASCII, percent-encoded where needed
	// slash is -0 if the path was written with a trailing slash, else 0, which == and maps treat as
	// equal.
	slash float64
}

// The schemes of relay URLs and clone URLs, for [ParseURL].
var (
	RelaySchemes = []string{"wss", "ws"}
	HTTPSchemes  = []string{"https", "http"}
)

func (u URL) String() string { return u.text("") }

// AsWritten returns the spelling to dial, with the trailing slash as written, because some servers
// accept only one of the two spellings.
func (u URL) AsWritten() string {
	if math.Signbit(u.slash) {
		return u.text("/")
	}
	return u.text("")
}

// ToggleSlash returns u with the trailing slash of [URL.AsWritten] added or removed.
func (u URL) ToggleSlash() URL {
	u.slash = -u.slash
	return u
}

func (u URL) text(slash string) string {
	if u == (URL{}) {
		return ""
	}
	var b strings.Builder
	b.WriteString(u.Scheme)
	b.WriteString("://")
	if u.HostPort.Port == u.defaultPort() {
		b.WriteString(bracket(u.HostPort.Host))
	} else {
		b.WriteString(u.HostPort.String())
	}
	b.WriteString(u.Path + slash)
	if u.Query != "" {
		b.WriteString("?" + u.Query)
	}
	return b.String()
}

// Plaintext reports whether the scheme is without TLS (ws or http).
func (u URL) Plaintext() bool { return u.Scheme == "ws" || u.Scheme == "http" }

func (u URL) defaultPort() uint16 {
	if u.Plaintext() {
		return 80
	}
	return 443
}

// ParseURL reads s as a URL of one of schemes ([RelaySchemes] or [HTTPSchemes]), by default the
// first. In canonical spelling scheme and host are lower-case ASCII, an IPv4-mapped address is
// IPv4, and there is no default port, trailing slash ([URL.AsWritten] keeps it), dot segment, needless
// percent-encoding, trailing dot of the host, or fragment.
//
// ParseURL rejects user information, control bytes (also percent-encoded), backslashes, ports that
// [DialablePort] does not allow, numeric hosts other than dotted IPv4 addresses, and URLs longer
// than [MaxURLLength]. All errors wrap [ErrURL], and quote no part that may be a password.
func ParseURL(s string, schemes []string) (URL, error) {
	if len(s) > MaxURLLength {
		return URL{}, fmt.Errorf("%w: %d bytes, more than %d", ErrURL, len(s), MaxURLLength)
	}
	s = strings.Trim(s, " \t\r\n")
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }) {
		return URL{}, fmt.Errorf("%w: a space, a backslash or a control byte in it", ErrURL)
	}
	if name, _, ok := strings.Cut(s, "://"); !ok || strings.ContainsAny(name, "/?#") {
		s = schemes[0] + "://" + s
	}
	parsed, err := url.Parse(s)
	switch {
	case err != nil: // the cause may be in a password that contains a slash
		return URL{}, fmt.Errorf("%w: malformed scheme, host, port or percent-encoding", ErrURL)
	case !slices.Contains(schemes, parsed.Scheme):
		return URL{}, fmt.Errorf("%w: scheme %q, want %s", ErrURL, Clip(parsed.Scheme, maxQuoted), strings.Join(schemes, " or "))
	case parsed.User != nil:
		return URL{}, fmt.Errorf("%w: user-info", ErrURL)
	}
	u := URL{Scheme: parsed.Scheme}
	if u.HostPort.Host, err = canonicalHost(parsed.Hostname(), strings.HasPrefix(parsed.Host, "[")); err != nil {
		return URL{}, err
	}
	switch u.HostPort.Host {
	case "http", "https", "ws", "wss":
		return URL{}, fmt.Errorf("%w: the host is the name of a scheme: is a colon missing before the slashes?", ErrURL)
	}
	u.HostPort.Port = u.defaultPort()
	if port := parsed.Port(); port != "" || strings.HasSuffix(parsed.Host, ":") {
		if u.HostPort.Port, err = parsePort(port); err != nil {
			return URL{}, err
		}
	}
	path := cmp.Or(parsed.RawPath, parsed.EscapedPath()) // as written
	if u.Path, err = canonicalPath(path); err != nil {
		return URL{}, err
	}
	if u.Query, err = canonicalEscapes(parsed.RawQuery); err != nil {
		return URL{}, err
	}
	// Percent-encoding can triple the length, and ParseURL must accept its own output.
	if u.Path != "" && strings.HasSuffix(path, "/") {
		u = u.ToggleSlash()
	}
	if n := len(u.AsWritten()); n > MaxURLLength {
		return URL{}, fmt.Errorf("%w: %d bytes once encoded, more than %d", ErrURL, n, MaxURLLength)
	}
	return u, nil
}

// canonicalPath returns the canonical spelling of a path (RFC 3986, 6.2.2), which is "" or starts
// with a slash.
func canonicalPath(p string) (string, error) {
	p, err := canonicalEscapes(p)
	if err != nil {
		return "", err
	}
	if p == "" {
		return "", nil
	}
	var segments []string
	for segment := range strings.SplitSeq(p[1:], "/") {
		switch segment {
		case ".":
		case "..":
			segments = segments[:max(0, len(segments)-1)]
		default:
			segments = append(segments, "/"+segment)
		}
	}
	return strings.TrimRight(strings.Join(segments, ""), "/"), nil
}

// canonicalEscapes percent-encodes exactly the bytes that require it. It rejects percent-encoded
// control bytes, because later code may decode them into a log line, a header or a path.
func canonicalEscapes(s string) (string, error) {
	const upperHex = "0123456789ABCDEF"
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		encoded := c == '%'
		if encoded {
			hex := s[i+1 : min(i+3, len(s))]
			n, err := strconv.ParseUint(hex, 16, 8)
			if c = byte(n); err != nil || len(hex) < 2 || c < ' ' || c == 0x7f {
				return "", fmt.Errorf("%w: percent-encoding %q", ErrURL, hex)
			}
			i += 2
		}
		if isUnreserved(c) || !encoded && strings.IndexByte("!$&'()*+,;=:@/?", c) >= 0 {
			out = append(out, c)
		} else {
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(out), nil
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}
