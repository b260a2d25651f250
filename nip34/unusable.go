package nip34

import (
	"iter"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Unusable is a value that an event lists among relays or clone URLs, and that is none that we would
// connect to.
type Unusable struct {
	List  string // the name of the tag: "relays" or "clone"
	Value string // as written: a stranger's words, which may be long
	Err   error  // why; wraps [graspsync.ErrURL]
}

// UnusableURLs yields what an announcement lists among relays and clone URLs, or a pull request among the
// latter, and what is no use to us: of another scheme, or on a port that is never dialed, say.
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
