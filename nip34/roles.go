package nip34

import (
	"slices"
	"strconv"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// The names of role tags. Leads and co-maintainers may sign states. A view begins with the lead
// that its owner names. Moderators may neither sign states nor invite other keys.
const (
	leadTag         = "M"
	coMaintainerTag = "m"
	moderatorTag    = "o"
)

// ownRole is the combined meaning of the role tags of an announcement for its author.
type ownRole uint8

// The values, the weakest first. Of several role tags the strongest counts.
const (
	noRole       ownRole = iota // no role tag names the author
	inactiveRole                // the roles have ended, are invalid, or are those of a moderator
	activeRole
)

// parseRole reads a role tag: a letter, a key, and Unix times at which the role alternately started
// and ended. The role is active if it has no times, or an odd number of valid ones. ok is false for
// other tags and for an invalid key.
func parseRole(tag nostr.Tag) (key graspsync.PubKey, isActive, ok bool) {
	if !isRole(tag) || len(tag) < 2 {
		return key, false, false
	}
	key, err := graspsync.ParsePubKey(tag[1])
	if err != nil {
		return key, false, false
	}
	isActive = len(tag) == 2 || len(tag)%2 == 1
	for _, t := range tag[2:] {
		_, err := strconv.ParseUint(t, 10, 64)
		isActive = isActive && err == nil
	}
	return key, isActive, true
}

func isRole(tag nostr.Tag) bool {
	return len(tag) > 0 && (tag[0] == leadTag || tag[0] == coMaintainerTag || tag[0] == moderatorTag)
}

const maxLeads = 2

// readRoles reads all role tags, or without any the tag `maintainers`, which is for clients without
// roles.
func (a *Announcement) readRoles(ev *nostr.Event) {
	if !slices.ContainsFunc(ev.Tags, isRole) {
		a.Maintainers, a.UnusableMaintainers, a.DroppedMaintainers = tagValues(ev, "maintainers", MaxMaintainers, graspsync.ParsePubKey)
		return
	}
	maintains := make(map[graspsync.PubKey]struct{})
	for _, tag := range ev.Tags {
		if !isRole(tag) {
			continue
		}
		key, isActive, ok := parseRole(tag)
		if !ok {
			a.UnusableMaintainers++
			continue
		}
		isActive = isActive && tag[0] != moderatorTag
		if key == a.Ref.Owner {
			a.ownRole = max(a.ownRole, inactiveRole)
			if isActive {
				a.ownRole = activeRole
			}
		}
		if !isActive {
			continue
		}
		if tag[0] == leadTag && len(a.Leads) < maxLeads && !slices.Contains(a.Leads, key) {
			a.Leads = append(a.Leads, key)
		}
		if _, again := maintains[key]; again {
			continue
		}
		if len(a.Maintainers) == MaxMaintainers {
			a.DroppedMaintainers++
			continue
		}
		maintains[key] = struct{}{}
		a.Maintainers = append(a.Maintainers, key)
	}
}

// ClaimsRole reports whether the author claims to be a maintainer: no role tag names the author, or an
// active one does.
func (a *Announcement) ClaimsRole() bool { return a.ownRole != inactiveRole }
