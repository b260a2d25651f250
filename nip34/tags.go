package nip34

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// RepoRefs returns the repositories whose announcements the event refers to in its
// a, A and q tags: all of them, each once, in order.
func RepoRefs(ev *nostr.Event) []graspsync.RepoRef {
	return references(ev, "aAq", 0, graspsync.ParseRepoRef)
}

// RootRefs returns the repositories that a patch, pull request or issue belongs
// to: the first [MaxRepos] that its a tags name. Without any the event is no root
// event; neither is an event of another kind.
func RootRefs(ev *nostr.Event) []graspsync.RepoRef {
	if !IsRoot(ev.Kind) {
		return nil
	}
	return references(ev, "a", MaxRepos, graspsync.ParseRepoRef)
}

// Addresses returns the addresses that the event refers to in its a, A and q tags,
// of whatever kind, each once, in order.
func Addresses(ev *nostr.Event) []graspsync.Address {
	return references(ev, "aAq", 0, graspsync.ParseAddress)
}

// EventRefs returns the ids that the event refers to in its e, E and q tags: all
// of them, each once, in order.
func EventRefs(ev *nostr.Event) []graspsync.EventID {
	return references(ev, "eEq", 0, graspsync.ParseEventID)
}

// ParseDeletion returns what a deletion (NIP-09, kind 5) names: the ids of its e
// tags and the addresses of its a tags, each once, in order. Whether they are its
// author's is for the caller to see. An event of another kind names nothing.
func ParseDeletion(ev *nostr.Event) (ids []graspsync.EventID, addresses []graspsync.Address) {
	if ev.Kind != graspsync.KindDeletion {
		return nil, nil
	}
	return references(ev, "e", 0, graspsync.ParseEventID), references(ev, "a", 0, graspsync.ParseAddress)
}

// IsRoot reports whether events of this kind start a conversation about a
// repository: patch, pull request, issue. The event is a root only with
// [RootRefs].
func IsRoot(kind int) bool {
	return kind == graspsync.KindPatch || kind == graspsync.KindPullRequest || kind == graspsync.KindIssue
}

// IsProtected reports whether only its author may publish the event (NIP-70).
func IsProtected(ev *nostr.Event) bool {
	for _, tag := range ev.Tags {
		if len(tag) > 0 && tag[0] == "-" {
			return true
		}
	}
	return false
}

// Expiration returns the second from which on the event has expired (NIP-40), and
// false for one that never does. A value that is no time counts as none.
func Expiration(ev *nostr.Event) (nostr.Timestamp, bool) {
	value, ok := firstValue(ev, "expiration")
	if !ok { // nearly always: an error would be made for nobody
		return 0, false
	}
	n, err := strconv.ParseUint(value, 10, 63)
	return nostr.Timestamp(n), err == nil //nolint:gosec // 63 bits fit
}

// references collects what the first values of the tags named by one of the
// letters in names hold, as far as parse reads it: each once, in order, at most
// most of them unless that is 0.
func references[T comparable](ev *nostr.Event, names string, most int, parse func(string) (T, error)) []T {
	var list []T
	var seen map[T]struct{} // once the list is too long to be looked through
	known := func(v T) bool {
		if len(list) < longList {
			return slices.Contains(list, v)
		}
		if seen == nil {
			seen = make(map[T]struct{}, 2*longList)
			for _, v := range list {
				seen[v] = struct{}{}
			}
		}
		_, ok := seen[v]
		seen[v] = struct{}{}
		return ok
	}
	for _, tag := range ev.Tags {
		if len(tag) < 2 || len(tag[0]) != 1 || !strings.Contains(names, tag[0]) {
			continue
		}
		v, err := parse(tag[1])
		if err != nil {
			continue
		}
		if known(v) {
			continue
		}
		if list = append(list, v); len(list) == most {
			break
		}
	}
	return list
}

// longList is from how many values on they are looked up in a map.
const longList = 16

// firstValue returns the value of the first tag of that name, and false if there
// is no such tag or it has no value.
func firstValue(ev *nostr.Event, name string) (string, bool) {
	for _, tag := range ev.Tags {
		if len(tag) > 0 && tag[0] == name {
			if len(tag) == 1 {
				return "", false
			}
			return tag[1], true
		}
	}
	return "", false
}
