package nip34

import (
	"cmp"
	"iter"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// ListingProblem is the reason why an announcement does not list a service.
type ListingProblem uint8

// The problems. If several apply, the last in this list is returned, because it is the most
// specific.
const (
	// OmitsNothing means that the announcement lists the service.
	OmitsNothing ListingProblem = iota
	// OmitsService means that no relay and no clone URL belongs to the service.
	OmitsService
	// OmitsRelay means that a clone URL belongs to the service, and no relay does.
	OmitsRelay
	// OmitsClone means that a relay belongs to the service, and no clone URL does.
	OmitsClone
	// OmitsPath means that a clone URL of the service is not <npub>/<identifier>.git.
	OmitsPath
	// OmitsIdentifier means that a clone URL of the service has another identifier.
	OmitsIdentifier
	// OmitsOwner means that a clone URL of the service has the npub of another owner.
	OmitsOwner
)

// Omits returns the reason why an announcement does not list this service ([Identity.Lists]), and
// its most similar URL. The URL is "" if there is none or the service is listed. If a list contains
// no URL of the service, the most similar URL is the first of [Identity.Nearest].
func (id Identity) Omits(a *Announcement) (why ListingProblem, found string) {
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
	switch { // the clone URL is more specific
	case len(clones) > 0 && (len(relays) == 0 || id.near(clones[0].HostPort()) >= id.near(relays[0].HostPort())):
		return why, clones[0].String()
	case len(relays) > 0:
		return why, relays[0].String()
	}
	return why, ""
}

// Nearest returns the URLs of an announcement, the most similar to those of the service first. URLs
// with the host of the service come first, then URLs with its port, then URLs with the expected
// path.
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

// near returns the number of parts of an authority that equal those of the service.
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

// hasPath returns 1 if an address of the service has the path, whatever its authority.
func (id Identity) hasPath(path []string) int {
	if slices.ContainsFunc(id.bases, func(b base) bool { return slices.Equal(b.path, path) }) {
		return 1
	}
	return 0
}

// omitted returns the reason why a clone URL of the service is not that of the repository.
func (id Identity) omitted(u graspsync.CloneURL, ref graspsync.RepoRef) ListingProblem {
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

// RelayURL returns the relay URL that announcements must list, made from the first address of the
// service. It is a ws:// URL for localhost and private networks. It is "" for the zero Identity.
func (id Identity) RelayURL() string {
	if id.IsZero() {
		return ""
	}
	return id.bases[0].url(graspsync.RelaySchemes)
}

// CloneBase returns the beginning of the clone URLs of the service, and "" for the zero Identity.
func (id Identity) CloneBase() string {
	if id.IsZero() {
		return ""
	}
	return id.bases[0].url(graspsync.HTTPSchemes)
}

// CloneURL returns the clone URL that announcements of a repository must list. See
// [Identity.RelayURL].
func (id Identity) CloneURL(ref graspsync.RepoRef) string {
	if id.IsZero() {
		return ""
	}
	return id.CloneBase() + "/" + NPub(ref.Owner) + "/" + url.PathEscape(ref.Identifier) + ".git"
}

// url formats a base with the first of two schemes, or with the second if the base is without TLS.
func (b base) url(schemes []graspsync.Scheme) string {
	scheme := schemes[0]
	if b.authority.Port == schemes[1].DefaultPort || b.authority.Port != scheme.DefaultPort && isLocal(b.authority.Host) {
		scheme = schemes[1]
	}
	return graspsync.URL{Scheme: scheme.Name, HostPort: b.authority, Path: b.escaped()}.String()
}

// isLocal reports whether a host is this machine or not public.
func isLocal(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || !strings.Contains(host, ".")
}

// Unusable is a relay or clone URL of an event to which this server never connects.
type Unusable struct {
	List  string // name of the tag, "relays" or "clone"
	Value string // as written; remote text that may be long
	Err   error  // reason; wraps [graspsync.ErrURL]
}

// UnusableURLs yields the relays and clone URLs of an announcement, or the clone URLs of a pull
// request, to which this server never connects, for example because of their scheme or port.
func UnusableURLs(ev *nostr.Event) iter.Seq[Unusable] {
	return func(yield func(Unusable) bool) {
		for _, tag := range ev.Tags {
			if len(tag) == 0 {
				continue
			}
			for _, value := range tag[1:] {
				var err error
				switch tag[0] {
				case "relays":
					_, err = graspsync.ParseRelayURL(value)
				case "clone":
					_, err = graspsync.ParseCloneURL(value)
				}
				if err != nil && !yield(Unusable{tag[0], value, err}) {
					return
				}
			}
		}
	}
}
