package nip34

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
)

// ErrIdentity is wrapped by the errors of [ParseIdentity].
var ErrIdentity = errors.New("unusable service address")

// Identity contains the addresses of this service: host, port and path of the relay. Clone URLs are
// below the same path. A service without a path owns its host. Identity is immutable.
type Identity struct {
	bases []base
}

type base struct {
	plaintext bool // http and ws
	authority graspsync.HostPort
	path      string // canonical
}

// ParseIdentity reads the addresses of this service, each a URL (https, http, wss, ws) or a host
// with or without port and path. A host alone means the ports 443 and 80. The error names every
// invalid address and wraps [ErrIdentity].
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

// parseBases returns two bases for an address without scheme and port.
func parseBases(spec string) ([]base, error) {
	readings := [][]string{slices.Concat(graspsync.HTTPSchemes, graspsync.RelaySchemes)}
	if !strings.Contains(spec, "://") {
		readings = [][]string{graspsync.HTTPSchemes[:1], graspsync.HTTPSchemes[1:]}
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
		b := base{plaintext: u.Plaintext(), authority: u.HostPort, path: u.Path}
		if len(bases) == 0 || bases[0].authority != b.authority {
			bases = append(bases, b)
		} else {
			bases[0].plaintext = isLocalHost(u.HostPort.Host) // both schemes name this port
		}
	}
	return bases, nil
}

// Origin returns the scheme, host and port of the address of this service that a client named in
// its Host header, otherwise those of the first address. The client does not decide the scheme. It
// returns the zero URL for the zero Identity.
func (id Identity) Origin(host string) graspsync.URL {
	for _, b := range id.bases {
		u, err := graspsync.ParseURL(b.scheme(graspsync.HTTPSchemes)+"://"+host, graspsync.HTTPSchemes)
		if err == nil && b.authority == u.HostPort {
			return graspsync.URL{Scheme: u.Scheme, HostPort: b.authority}
		}
	}
	if id.IsZero() {
		return graspsync.URL{}
	}
	return graspsync.URL{Scheme: id.bases[0].scheme(graspsync.HTTPSchemes), HostPort: id.bases[0].authority}
}

// HostPorts returns the hosts and ports that belong to this service alone. For addresses with a path
// use [Identity.IsRelay] and [Identity.IsClone].
func (id Identity) HostPorts() []graspsync.HostPort {
	out := make([]graspsync.HostPort, 0, len(id.bases))
	for _, b := range id.bases {
		if b.path == "" {
			out = append(out, b.authority)
		}
	}
	return out
}

func (id Identity) String() string {
	out := make([]string, len(id.bases))
	for i, b := range id.bases {
		out[i] = b.authority.String() + b.path
	}
	return strings.Join(out, " ")
}

// IsZero reports whether the Identity has no address.
func (id Identity) IsZero() bool { return len(id.bases) == 0 }

// Paths returns the distinct paths of the service, escaped and without a trailing slash.
func (id Identity) Paths() (paths []string) {
	for _, b := range id.bases {
		if b.path != "" && !slices.Contains(paths, b.path) {
			paths = append(paths, b.path)
		}
	}
	return paths
}

// IsRelay reports whether u is the relay of this service, at any path if the address has none.
func (id Identity) IsRelay(u graspsync.RelayURL) bool {
	return slices.ContainsFunc(id.bases, func(b base) bool {
		return b.authority == u.HostPort() && (b.path == "" || b.path == u.Path())
	})
}

// IsClone reports whether u is below an address of this service.
func (id Identity) IsClone(u graspsync.CloneURL) bool {
	return slices.ContainsFunc(id.bases, func(b base) bool {
		return b.authority == u.HostPort() && strings.HasPrefix(u.Path()+"/", b.path+"/")
	})
}

// Lists reports whether the announcement lists this service in both lists of [Identity.ListedIn].
func (id Identity) Lists(a *Announcement) bool {
	relays, clones := id.ListedIn(a)
	return relays && clones
}

// ListedIn reports which lists of the announcement contain this service: its relay, with the same
// path, and its clone URL "<base>/<npub of the owner>/<identifier>.git".
func (id Identity) ListedIn(a *Announcement) (relays, clones bool) {
	return slices.ContainsFunc(a.Relays, id.isRelayURL),
		slices.ContainsFunc(a.Clones, func(u graspsync.CloneURL) bool { return id.isCloneURL(u, a.Ref) })
}

// IsServedAt reports whether an address of this service has the host, port and path of u.
func (id Identity) IsServedAt(u graspsync.URL) bool { return id.hasBase(u.HostPort, u.Path) }

func (id Identity) isRelayURL(u graspsync.RelayURL) bool { return id.IsServedAt(u.URL()) }

func (id Identity) isCloneURL(u graspsync.CloneURL, ref graspsync.RepoRef) bool {
	if !id.IsClone(u) { // cheaper than to encode the key
		return false
	}
	dir, file := path.Split(u.Path())
	at, owned := strings.CutSuffix(dir, "/"+NPub(ref.Owner)+"/")
	name, err := url.PathUnescape(file)
	return owned && err == nil && name == ref.Identifier+".git" && u.URL().Query == "" && id.hasBase(u.HostPort(), at)
}

func (id Identity) hasBase(a graspsync.HostPort, path string) bool {
	return slices.ContainsFunc(id.bases, func(b base) bool { return b.authority == a && b.path == path })
}

// RelayURL returns the relay URL that announcements must list, of the first address, "" for the
// zero Identity. An address without scheme and with a port is without TLS if it is an IP address or
// a local name.
func (id Identity) RelayURL() string { return id.url(graspsync.RelaySchemes) }

// CloneBase returns the HTTP URL of the first address, with which clone URLs of the service begin,
// "" for the zero Identity.
func (id Identity) CloneBase() string { return id.url(graspsync.HTTPSchemes) }

func (id Identity) url(schemes []string) string {
	if id.IsZero() {
		return ""
	}
	b := id.bases[0]
	return graspsync.URL{Scheme: b.scheme(schemes), HostPort: b.authority, Path: b.path}.String()
}

// CloneURL returns the clone URL that announcements of a repository must list.
func (id Identity) CloneURL(ref graspsync.RepoRef) string {
	if id.IsZero() {
		return ""
	}
	return id.CloneBase() + "/" + NPub(ref.Owner) + "/" + url.PathEscape(ref.Identifier) + ".git"
}

func (b base) scheme(schemes []string) string {
	if b.plaintext {
		return schemes[1]
	}
	return schemes[0]
}

func isLocalHost(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") || !strings.Contains(host, ".")
}
