package nip34

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
)

// Omission is what keeps an announcement from making its repository one of a service.
type Omission uint8

// The omissions. Of several the one counts that comes last here and says most.
const (
	// OmitsNothing: it lists the service.
	OmitsNothing Omission = iota
	// OmitsService: neither its relays nor its clone URLs name the service.
	OmitsService
	// OmitsRelay: its clone URL does, and none of its relays is the service.
	OmitsRelay
	// OmitsClone: one of its relays is the service, and no clone URL leads there.
	OmitsClone
	// OmitsPath: a clone URL leads to the service, and not to <npub>/<identifier>.git.
	OmitsPath
	// OmitsIdentifier: a clone URL leads to another repository of the owner.
	OmitsIdentifier
	// OmitsOwner: a clone URL leads to a repository of somebody else.
	OmitsOwner
)

// Omits says why an announcement does not list our service ([Identity.Lists]), and which of its
// URLs comes closest: "" only if there is none, or it lists us. Of a list with nothing at our
// service that is the first by [Identity.Nearest].
func (id Identity) Omits(a *Announcement) (why Omission, found string) {
	relay := slices.ContainsFunc(a.Relays, id.served)
	for _, u := range a.Clones {
		switch is := id.omitted(u, a.Ref); {
		case is == OmitsNothing && relay:
			return OmitsNothing, ""
		case is == OmitsNothing:
			why, found = OmitsRelay, ""
			relays, _ := id.Nearest(a)
			if len(relays) > 0 {
				found = relays[0].String()
			}
			return why, found
		case is > why && is > OmitsService:
			why, found = is, u.String()
		}
	}
	if why > OmitsService {
		return why, found
	}
	relays, clones := id.Nearest(a)
	if relay {
		relays, why = nil, OmitsClone
	} else {
		why = OmitsService
	}
	switch { // of both a clone URL says more
	case len(clones) > 0 && (len(relays) == 0 || id.near(clones[0].HostPort()) >= id.near(relays[0].HostPort())):
		return why, clones[0].String()
	case len(relays) > 0:
		return why, relays[0].String()
	}
	return why, ""
}

// Nearest returns what an announcement lists, the nearest miss of our service first: what has our
// host, then what has our port, then what has the path that is wanted there.
func (id Identity) Nearest(a *Announcement) (relays []graspsync.RelayURL, clones []graspsync.CloneURL) {
	relays, clones = slices.Clone(a.Relays), slices.Clone(a.Clones)
	slices.SortStableFunc(relays, func(a, b graspsync.RelayURL) int {
		return cmp.Or(id.near(b.HostPort())-id.near(a.HostPort()), id.hasPath(segments(b.Path()))-id.hasPath(segments(a.Path())))
	})
	of := func(u graspsync.CloneURL) int {
		path := segments(u.Path())
		if n := len(path) - 2; n >= 0 && path[n] == NPub(a.Ref.Owner) && path[n+1] == a.Ref.Identifier+".git" {
			return 1 + id.hasPath(path[:n])
		}
		return 0
	}
	slices.SortStableFunc(clones, func(a, b graspsync.CloneURL) int {
		return cmp.Or(id.near(b.HostPort())-id.near(a.HostPort()), of(b)-of(a))
	})
	return relays, clones
}

// near is how much of an authority is ours.
func (id Identity) near(at graspsync.HostPort) (near int) {
	for _, b := range id.bases {
		is := 0
		if b.authority.Host == at.Host {
			is += 2
		}
		if b.authority.Port == at.Port {
			is++
		}
		near = max(near, is)
	}
	return near
}

// hasPath is 1 if our service is at a path, whatever the authority.
func (id Identity) hasPath(path []string) int {
	if slices.ContainsFunc(id.bases, func(b base) bool { return slices.Equal(b.path, path) }) {
		return 1
	}
	return 0
}

// omitted is what keeps a clone URL from being that of a repository here.
func (id Identity) omitted(u graspsync.CloneURL, ref graspsync.RepoRef) Omission {
	path := segments(u.Path())
	switch {
	case id.serves(u, ref):
		return OmitsNothing
	case !id.IsClone(u):
		return OmitsService
	case u.URL().Query != "" || len(path) < 2 || !id.at(u.HostPort(), path[:len(path)-2]) || !isKey(path[len(path)-2]):
		return OmitsPath
	}
	owner, name := path[len(path)-2], path[len(path)-1]
	switch {
	case owner != NPub(ref.Owner):
		return OmitsOwner
	case name == ref.Identifier || !strings.HasSuffix(name, ".git"):
		return OmitsPath
	}
	return OmitsIdentifier
}

// RelayURL is what announcements are to have among their relays, for people: the first address of
// the service, without encryption where it is this machine or a private network. It is "" for
// the zero Identity.
func (id Identity) RelayURL() string {
	if id.IsZero() {
		return ""
	}
	return id.bases[0].url(graspsync.RelaySchemes)
}

// CloneBase is what clone URLs of the service begin with, for people, "" for the zero Identity.
func (id Identity) CloneBase() string {
	if id.IsZero() {
		return ""
	}
	return id.bases[0].url(graspsync.HTTPSchemes)
}

// CloneURL is what announcements of a repository are to have among their clone URLs; see
// [Identity.RelayURL].
func (id Identity) CloneURL(ref graspsync.RepoRef) string {
	if id.IsZero() {
		return ""
	}
	return id.CloneBase() + "/" + NPub(ref.Owner) + "/" + url.PathEscape(ref.Identifier) + ".git"
}

// url spells a base with the first of two schemes, or the second where there is no encryption.
func (b base) url(schemes []graspsync.Scheme) string {
	scheme := schemes[0]
	if b.authority.Port == schemes[1].DefaultPort || b.authority.Port != scheme.DefaultPort && isLocal(b.authority.Host) {
		scheme = schemes[1]
	}
	return graspsync.URL{Scheme: scheme.Name, HostPort: b.authority, Path: b.escaped()}.String()
}

// isLocal reports whether a host is this machine, or one that is not public.
func isLocal(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || !strings.Contains(host, ".")
}
