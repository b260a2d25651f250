package nip34

import (
	"strconv"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// RepoRefs returns the distinct repositories whose announcements the event refers to in its a, A
// and q tags.
func RepoRefs(ev *nostr.Event) []graspsync.RepoRef {
	return references(ev, "aAq", 0, graspsync.ParseRepoRef)
}

// RootRefs returns the first [MaxRepos] repositories of a patch, pull request or issue. An event
// without repositories is no root event.
func RootRefs(ev *nostr.Event) []graspsync.RepoRef {
	if !IsRoot(ev.Kind) {
		return nil
	}
	return references(ev, "a", MaxRepos, graspsync.ParseRepoRef)
}

// Addresses returns the distinct addresses of all kinds that the event refers to in its a, A and q
// tags.
func Addresses(ev *nostr.Event) []graspsync.Address {
	return references(ev, "aAq", 0, graspsync.ParseAddress)
}

// EventRefs returns the distinct ids that the event refers to in its e, E and q tags.
func EventRefs(ev *nostr.Event) []graspsync.EventID {
	return references(ev, "eEq", 0, graspsync.ParseEventID)
}

// IsRoot reports whether the kind is a patch, pull request or issue.
func IsRoot(kind int) bool {
	return kind == graspsync.KindPatch || kind == graspsync.KindPullRequest || kind == graspsync.KindIssue
}

// IsProtected reports whether only the author may publish the event (NIP-70).
func IsProtected(ev *nostr.Event) bool {
	for _, tag := range ev.Tags {
		if len(tag) > 0 && tag[0] == "-" {
			return true
		}
	}
	return false
}

// Expiration returns the time from which the event is expired (NIP-40), or false.
func Expiration(ev *nostr.Event) (nostr.Timestamp, bool) {
	value, ok := firstValue(ev, "expiration")
	if !ok { // the usual case, without allocating an error
		return 0, false
	}
	n, err := strconv.ParseUint(value, 10, 63)
	return nostr.Timestamp(n), err == nil //nolint:gosec // 63 bits fit
}

// references returns at most most (0: all) distinct valid values of the tags named by one of the
// letters in names.
func references[T comparable](ev *nostr.Event, names string, most int, parse func(string) (T, error)) []T {
	var list []T
	seen := make(map[T]struct{})
	for _, tag := range ev.Tags {
		if len(tag) < 2 || len(tag[0]) != 1 || !strings.Contains(names, tag[0]) {
			continue
		}
		v, err := parse(tag[1])
		if _, again := seen[v]; err != nil || again {
			continue
		}
		seen[v] = struct{}{}
		if list = append(list, v); len(list) == most {
			break
		}
	}
	return list
}

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
