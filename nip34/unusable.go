package nip34

import (
	"iter"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

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
