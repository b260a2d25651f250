package relaytest

import (
	"maps"
	"net/url"
	"slices"
	"strconv"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

const (
	kindPullRequestUpdate = 1619
	kindComment           = 1111
)

// Event returns a signed event.
func (k *Key) Event(at nostr.Timestamp, kind int, content string, tags ...nostr.Tag) *nostr.Event {
	ev := &nostr.Event{CreatedAt: at, Kind: kind, Content: content, Tags: tags}
	k.Sign(ev)
	return ev
}

// Announcement returns a repository announcement (30617).
func (k *Key) Announcement(at nostr.Timestamp, identifier string, relays, clones []string, maintainers ...*Key) *nostr.Event {
	tags := nostr.Tags{{"d", identifier}, {"name", identifier}}
	tags = appendTag(tags, "relays", relays)
	tags = appendTag(tags, "clone", clones)
	var names []string
	for _, m := range maintainers {
		names = append(names, m.hex)
	}
	tags = appendTag(tags, "maintainers", names)
	return k.Event(at, graspsync.KindAnnouncement, "", tags...)
}

// Hosted returns an announcement of a repository on GRASP servers, as wss relay and https clone
// URL, or with the scheme of a host such as "ws://127.0.0.1:7334".
func (k *Key) Hosted(at nostr.Timestamp, identifier string, hosts ...string) *nostr.Event {
	relays := make([]string, len(hosts))
	clones := make([]string, len(hosts))
	for i, h := range hosts {
		relays[i] = h
		if u, err := url.Parse(h); err != nil || u.Scheme == "" || u.Host == "" {
			relays[i] = "wss://" + h
		}
		clones[i] = k.CloneURL(relays[i], identifier)
	}
	return k.Announcement(at, identifier, relays, clones)
}

// CloneURL returns the clone URL of the repository on the GRASP server with this relay URL.
func (k *Key) CloneURL(relay, identifier string) string {
	base, err := url.Parse(relay)
	if err != nil {
		return ""
	}
	base.Scheme = map[string]string{"ws": "http", "wss": "https"}[base.Scheme]
	return base.String() + "/" + k.Npub() + "/" + url.PathEscape(identifier) + ".git"
}

// State returns a repository state (30618). head is the branch of HEAD, "" for none.
func (k *Key) State(at nostr.Timestamp, identifier string, refs map[string]string, head string) *nostr.Event {
	tags := nostr.Tags{{"d", identifier}}
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		tags = append(tags, nostr.Tag{name, refs[name]})
	}
	if head != "" {
		tags = append(tags, nostr.Tag{"HEAD", "ref: refs/heads/" + head})
	}
	return k.Event(at, graspsync.KindState, "", tags...)
}

// Issue returns an issue (1621).
func (k *Key) Issue(at nostr.Timestamp, repo graspsync.RepoRef, subject string) *nostr.Event {
	return k.root(at, graspsync.KindIssue, repo, subject)
}

// Patch returns a patch (1617).
func (k *Key) Patch(at nostr.Timestamp, repo graspsync.RepoRef, subject string) *nostr.Event {
	return k.root(at, graspsync.KindPatch, repo, subject, nostr.Tag{"t", "root"})
}

// PullRequest returns a pull request (1618) for a commit that the clone URLs serve.
func (k *Key) PullRequest(at nostr.Timestamp, repo graspsync.RepoRef, subject, commit string, clones ...string) *nostr.Event {
	tags := appendTag(nostr.Tags{{"c", commit}}, "clone", clones)
	return k.root(at, graspsync.KindPullRequest, repo, subject, tags...)
}

func (k *Key) root(at nostr.Timestamp, kind int, repo graspsync.RepoRef, subject string, more ...nostr.Tag) *nostr.Event {
	tags := nostr.Tags{{"a", repo.String()}, {"p", repo.Owner.String()}, {"subject", subject}}
	return k.Event(at, kind, subject, append(tags, more...)...)
}

// Comment returns a comment on a root event (1111, NIP-22).
func (k *Key) Comment(at nostr.Timestamp, root *nostr.Event, text string) *nostr.Event {
	kind := strconv.Itoa(root.Kind)
	return k.Event(at, kindComment, text,
		nostr.Tag{"E", root.ID}, nostr.Tag{"K", kind}, nostr.Tag{"P", root.PubKey},
		nostr.Tag{"e", root.ID}, nostr.Tag{"k", kind}, nostr.Tag{"p", root.PubKey})
}

// Status returns a status of a root event. kind is 1630 open, 1631 applied, 1632 closed or 1633
// draft.
func (k *Key) Status(at nostr.Timestamp, kind int, root *nostr.Event) *nostr.Event {
	tags := nostr.Tags{{"e", root.ID, "", "root"}, {"p", root.PubKey}}
	if a := tagValue(root, "a"); a != "" {
		tags = append(tags, nostr.Tag{"a", a})
	}
	return k.Event(at, kind, "", tags...)
}

// Deletion returns a deletion (5, NIP-09). It names addressable targets by address and others by
// id.
func (k *Key) Deletion(at nostr.Timestamp, targets ...*nostr.Event) *nostr.Event {
	var tags nostr.Tags
	for _, ev := range targets {
		if addr, ok := eventtest.Of(ev).Address(); ok {
			tags = append(tags, nostr.Tag{"a", addr.String()})
		} else {
			tags = append(tags, nostr.Tag{"e", ev.ID})
		}
		tags = append(tags, nostr.Tag{"k", strconv.Itoa(ev.Kind)})
	}
	return k.Event(at, graspsync.KindDeletion, "", tags...)
}

func appendTag(tags nostr.Tags, name string, values []string) nostr.Tags {
	if len(values) == 0 {
		return tags
	}
	return append(tags, append(nostr.Tag{name}, values...))
}
