package nip34

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
)

// ErrIdentity is wrapped by the errors of [ParseIdentity].
var ErrIdentity = errors.New("unusable service address")

// Identity is our own service: the authorities (host and port) that it is reached
// at, each with the path that its relay is served under and that clone URLs start
// with. A service that has a path shares its host: what is there under other paths is
// somebody else's. One without a path has its host to itself. The zero Identity is no
// service: nothing is its own. It does not change once parsed and may be copied.
type Identity struct {
	bases []base
}

type base struct {
	scheme    string // http or https
	authority graspsync.HostPort
	path      []string // decoded segments
}

// ParseIdentity reads the addresses of our service. "grasp.example.com" stands for
// the ports 443 and 80, "grasp.example.com:7334" for that port, and a URL (https,
// http, wss, ws) for its own; each may have a path, as "https://example.com/git".
// Schemes matter only for the default port. The error names every bad address and
// wraps [ErrIdentity].
func ParseIdentity(specs ...string) (Identity, error) {
	var id Identity
	var errs []error
	for _, spec := range specs {
		bases, err := parseBases(spec)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w %q: %w", ErrIdentity, spec, err))
		}
		id.bases = append(id.bases, bases...)
	}
	if len(errs) > 0 {
		return Identity{}, errors.Join(errs...)
	}
	return id, nil
}

// parseBases reads one address of ours: two authorities where it names neither
// scheme nor port.
func parseBases(spec string) ([]base, error) {
	readings := [][]graspsync.Scheme{slices.Concat(graspsync.HTTPSchemes, graspsync.RelaySchemes)}
	if !strings.Contains(spec, "://") {
		readings = [][]graspsync.Scheme{graspsync.HTTPSchemes[:1], graspsync.HTTPSchemes[1:]}
	}
	var bases []base
	for _, schemes := range readings {
		u, err := graspsync.ParseURL(spec, schemes)
		if err != nil {
			return nil, err
		}
		if u.Query != "" {
			return nil, errors.New("has a query")
		}
		b := base{scheme: "https", authority: u.HostPort, path: segments(u.Path)}
		if u.Plaintext() {
			b.scheme = "http"
		}
		if len(bases) == 0 || bases[0].authority != b.authority {
			bases = append(bases, b)
		} else if _, err := netip.ParseAddr(u.HostPort.Host); err == nil || u.HostPort.Host == "localhost" {
			bases[0].scheme = "http" // for trying it out
		}
	}
	return bases, nil
}

// URL returns the HTTP URL of the first address of the service, and "" for the zero Identity. If that address
// names a port and no scheme, it is https, and http for an IP address and localhost.
func (id Identity) URL() string {
	if id.IsZero() {
		return ""
	}
	b := id.bases[0]
	return graspsync.URL{Scheme: b.scheme, HostPort: b.authority, Path: b.escaped()}.String()
}

// Origin returns the scheme, host and port of the service for a client that named these: the same if they are
// ours, else those of our first address. It returns the zero URL for the zero Identity.
func (id Identity) Origin(named string) graspsync.URL {
	u, err := graspsync.ParseURL(named, graspsync.HTTPSchemes)
	for _, b := range id.bases {
		if err == nil && b.authority == u.HostPort {
			return graspsync.URL{Scheme: u.Scheme, HostPort: u.HostPort}
		}
	}
	if id.IsZero() {
		return graspsync.URL{}
	}
	return graspsync.URL{Scheme: id.bases[0].scheme, HostPort: id.bases[0].authority}
}

// HostPorts returns the hosts and ports that are ours alone, for the dialer that must
// never connect to them. Of what is reached under a path there may be others beside it:
// [Identity.IsRelay] and [Identity.IsClone] tell.
func (id Identity) HostPorts() []graspsync.HostPort {
	out := make([]graspsync.HostPort, 0, len(id.bases))
	for _, b := range id.bases {
		if len(b.path) == 0 {
			out = append(out, b.authority)
		}
	}
	return out
}

// String returns the addresses of the service, for logs.
func (id Identity) String() string {
	out := make([]string, len(id.bases))
	for i, b := range id.bases {
		out[i] = b.authority.String() + b.escaped()
	}
	return strings.Join(out, " ")
}

// escaped is the path without a slash at its end, "" for a whole host.
func (b base) escaped() (path string) {
	for _, segment := range b.path {
		path += "/" + url.PathEscape(segment)
	}
	return path
}

// IsZero reports whether the Identity is no service.
func (id Identity) IsZero() bool { return len(id.bases) == 0 }

// Paths returns the paths under which the service is reached, escaped and without a slash
// at the end, each once; that of a whole host is left out.
func (id Identity) Paths() (paths []string) {
	for _, b := range id.bases {
		if path := b.escaped(); path != "" && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// IsRelay reports whether the relay is ourselves, so that we are never our own peer: host
// and port decide, whatever the path, and exactly the path too where we have one.
func (id Identity) IsRelay(u graspsync.RelayURL) bool {
	path := segments(u.Path())
	return slices.ContainsFunc(id.bases, func(b base) bool {
		return b.authority == u.HostPort() && (len(b.path) == 0 || slices.Equal(b.path, path))
	})
}

// IsClone reports whether a clone URL leads to ourselves: host and port decide, and that it
// is below our path.
func (id Identity) IsClone(u graspsync.CloneURL) bool {
	path := segments(u.Path())
	return slices.ContainsFunc(id.bases, func(b base) bool {
		return b.authority == u.HostPort() && len(b.path) <= len(path) && slices.Equal(b.path, path[:len(b.path)])
	})
}

// Lists reports whether the announcement names our service: one of its relays is
// ours, path included, and one of its clone URLs is "<base>/<npub of the
// owner>/<identifier>.git" of ours, the identifier percent-encoded or not. Of either
// list [MaxListed] count, however few of them are made use of.
func (id Identity) Lists(a *Announcement) bool {
	return slices.ContainsFunc(a.Relays, id.served) &&
		slices.ContainsFunc(a.Clones, func(u graspsync.CloneURL) bool { return id.serves(u, a.Ref) })
}

// IsServedAt reports whether our service is at the URL: host, port and exactly the path. The scheme and the
// query do not count.
func (id Identity) IsServedAt(u graspsync.URL) bool { return id.at(u.HostPort, segments(u.Path)) }

func (id Identity) served(u graspsync.RelayURL) bool { return id.IsServedAt(u.URL()) }

func (id Identity) serves(u graspsync.CloneURL, ref graspsync.RepoRef) bool {
	if u.URL().Query != "" || !id.IsClone(u) {
		return false
	}
	path := segments(u.Path())
	n := len(path) - 2
	return n >= 0 && path[n] == NPub(ref.Owner) && path[n+1] == ref.Identifier+".git" &&
		id.at(u.HostPort(), path[:n])
}

// at reports whether our service is at this authority under exactly this path.
func (id Identity) at(a graspsync.HostPort, path []string) bool {
	return slices.ContainsFunc(id.bases, func(b base) bool {
		return b.authority == a && slices.Equal(b.path, path)
	})
}

// segments splits a path of a [graspsync.URL] and decodes its parts one by one, so
// that an encoded slash stays within its part.
func segments(path string) []string {
	if path == "" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, p := range parts {
		if decoded, err := url.PathUnescape(p); err == nil {
			parts[i] = decoded
		}
	}
	return parts
}
