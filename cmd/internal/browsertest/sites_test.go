package browsertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/pages"
	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

const domain = "grasp.example.com"

const readme = "# Lantern\n\nA small renderer for **maps of the night sky**. See [the guide](https://example.com/guide) and `lantern --help`.\n\n" +
	"[![build](https://example.com/badge.svg)](https://example.com/build) ![a picture](picture.png) <b>raw HTML</b>\n\n## Install\n\n```sh\n" +
	"go install example.com/lantern/cmd/lantern@latest && lantern render --catalog hipparcos --output a-file-with-a-very-long-name-that-needs-room.svg\n```\n\n" +
	"## Options\n\n| option | default | meaning |\n|---|---|---|\n| `--catalog` | `hipparcos` | the catalog of stars that is drawn |\n| `--magnitude` | 6.5 | the faintest star |\n\n" +
	"1. Choose a place.\n2. Choose a time.\n   - in UTC\n   - or local\n\n> The sky is not the limit.\n\n### License\n\nMIT\n"

// store is a Store of unsigned events.
type store []graspsync.Event

func (s store) Events(_ context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		for _, e := range s {
			if f.Matches(e.Event) && !yield(e, nil) {
				return
			}
		}
	}
}

func (s store) announced(_ context.Context, ref graspsync.RepoRef) (*nip34.Announcement, map[graspsync.PubKey]struct{}, error) {
	for _, e := range s {
		if a, err := nip34.ParseAnnouncement(e); err == nil && a.Ref == ref {
			return a, map[graspsync.PubKey]struct{}{ref.Owner: {}, relaytest.NewKey("bob").Ref("x").Owner: {}}, nil
		}
	}
	return nil, nil, nil
}

// public returns the public pages of a server with repositories.
func public(t *testing.T) (site string, repository string) {
	t.Helper()
	var s store
	add := func(ev *nostr.Event) {
		e, err := graspsync.ParseEvent(ev)
		require.NoError(t, err)
		s = append(s, e)
	}
	now := time.Now()
	for i, about := range []string{
		"Lantern|A small renderer for maps of the night sky", "ngit-relay-tools|Tools for operators of relays: backups, moderation queues and reports, in one static binary without dependencies",
		"tide|Tide tables for small harbors", "a-repository-with-a-very-long-identifier-that-somebody-chose-to-test-our-pages-with|", "Notes|Everything I learned about sails",
		"kiln|Controls a pottery kiln over a serial line, with curves for cone 6 and cone 10", "wren|A text editor", "مكتبة|A library with a name from right to left",
	} {
		name, description, _ := strings.Cut(about, "|")
		k := relaytest.NewKey(fmt.Sprint("owner", i%3))
		identifier := strings.ToLower(name)
		add(k.Event(nostr.Timestamp(now.Add(-time.Duration(i*i*i)*time.Hour-2*time.Minute).Unix()), graspsync.KindAnnouncement, "", nostr.Tag{"d", identifier}, nostr.Tag{"name", name},
			nostr.Tag{"description", description}, nostr.Tag{"web", "https://lantern.example.com/docs/a/rather/long/path"}, nostr.Tag{"relays", "wss://" + domain},
			nostr.Tag{"clone", k.CloneURL("wss://"+domain, identifier)}))
	}
	owner := relaytest.NewKey("owner0")
	for i := range 12 {
		add(owner.Event(nostr.Timestamp(now.Unix()-int64(i)), graspsync.KindIssue, "x", nostr.Tag{"a", owner.Ref("lantern").String()}))
	}
	identity, err := nip34.ParseIdentity(domain)
	require.NoError(t, err)
	p := pages.New(pages.Config{Identity: identity, Store: s, Announced: s.announced, About: func() pages.About {
		return pages.About{
			Name: domain, Description: "Git hosting for people who sail, and for their friends", Contact: "harbor@example.com", Criteria: "announcements that list this server in relays and clone",
			Version: "v0.1.0", GRASPs: []string{"GRASP-01", "GRASP-02"}, NIPs: strings.Fields("1 9 11 34 40 42 62 70 77"),
		}
	}})
	v := gitserve.View{
		Ref: owner.Ref("lantern"), HEAD: "refs/heads/main", Changed: now.Add(-3 * time.Hour), Subject: "Draw the ecliptic behind the constellations", ReadmeName: "README.md", Readme: []byte(readme),
		Refs: make(map[string]nip34.ObjectID),
	}
	for i, name := range strings.Fields("refs/heads/main refs/heads/fix/labels-that-overlap-near-the-pole refs/heads/next refs/tags/v1.0.0 refs/tags/v1.1.0 refs/tags/v1.2.0") {
		id, err := nip34.ParseObjectID(strings.Repeat(fmt.Sprintf("%08x", (i+5)*0x1234567), 5))
		require.NoError(t, err)
		v.Refs[name] = id
	}
	repository = "/" + owner.Npub() + "/lantern.git"
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = domain
		if r.URL.Path == repository {
			p.Repository(w, r, v)
			return
		}
		p.Front(w, r)
	})), repository
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// state is a server that syncs.
type state struct {
	status relaysync.Status
	git    purgatory.Status
	refs   []graspsync.RepoRef
}

func (s *state) Status() relaysync.Status { return s.status }

func (s *state) RepoRefs(context.Context) ([]graspsync.RepoRef, error) { return s.refs, nil }

func (s *state) RepoStatus(_ context.Context, refs ...graspsync.RepoRef) (out []relaysync.RepoStatus, err error) {
	for i, ref := range refs {
		r := relaysync.RepoStatus{Ref: ref, Level: "full", Maintainers: []nip34.Person{{Key: ref.Owner, Kind: nip34.Root}}, Roots: 7 * i % 40, Wanted: 30, Confirmed: 30 - i%3, InFlight: i % 3}
		for _, rel := range s.status.Relays[:min(2, len(s.status.Relays))] {
			r.Relays = append(r.Relays, relaysync.RepoRelay{URL: rel.URL, Phase: rel.Phase, Live: true, Wanted: 8, Confirmed: 7})
		}
		out = append(out, r)
	}
	return out, nil
}

type git struct{ *state }

func (g git) Status() purgatory.Status { return g.git }

// catchingUp returns a server while most of its git data is missing.
func catchingUp(t *testing.T) *state {
	t.Helper()
	now := time.Now()
	s := &state{status: relaysync.Status{
		At: now, Repos: 35, Roots: 1472, Git: relaysync.GitStatus{Complete: 35, Missing: 83, Unobtainable: 2},
		Events: relaysync.EventStatus{
			Received: 1_234_567, Verified: 330_000, Stored: 210_000, InFlight: 37, Waiting: 12, Dropped: map[string]uint64{"relays_listed": 41},
			Sources: map[string]uint64{"catchup": 208_000}, Rejected: map[string]uint64{"blocked: announcement does not list this service": 5312},
		},
	}}
	for i, name := range []string{"ws://127.0.0.1:33341", "wss://relay.ngit.dev", "wss://a-relay-with-a-rather-long-name.nostr.example.com/and/a/path", "wss://gone.example.com"} {
		u, err := graspsync.ParseRelayURL(name)
		require.NoError(t, err)
		r := relaysync.RelayStatus{
			URL: u, Phase: []string{"live", "syncing", "live with gaps", "disconnected"}[i], Health: []string{"healthy", "healthy", "healthy", "dead"}[i], Bootstrap: i == 0, Repos: 3 + i,
			Wanted: 1200 + i, Confirmed: 1200 - 40*i, Following: "live", Method: "NIP-77", Software: "strfry 1.0.4", Events: 8400, Stored: 7200, Bytes: 4 << 20, Gaps: uint64(i % 3), UptimeShare: 0.97,
		}
		if i == 3 {
			r.Failures, r.LastError, r.NextAttempt, r.UptimeShare = 7, "dialing gone.example.com: looking up the name: no such host", now.Add(42*time.Minute), 0.1
		}
		s.status.Relays = append(s.status.Relays, r)
	}
	for i := range 120 {
		s.refs = append(s.refs, relaytest.NewKey(fmt.Sprint("owner", i%7)).Ref(fmt.Sprintf("project-%03d", i)))
	}
	s.git = purgatory.Status{At: now, Announcements: 85, States: 83, PullRequests: 4, Ended: map[purgatory.EventCode]uint64{purgatory.Released: 70}, Fetches: 60, Failed: 23, Fetched: 210 << 20, Queue: 9}
	for i := range 20 {
		s.git.Waiting = append(s.git.Waiting, purgatory.EventState{
			ID: graspsync.EventID{byte(i), 17}, Class: []string{"state", "pull request", "announcement"}[i%3], Repos: s.refs[i : i+1],
			Since: now.Add(-time.Duration(i) * time.Minute), Deadline: now.Add(time.Duration(i+1) * time.Minute), Missing: i % 4,
		})
	}
	s.git.Domains = []purgatory.DomainStatus{
		{Domain: "git.example.com:443", Requests: 40, Failed: 2, LastRequest: now, LastFailure: now.Add(-time.Hour), LastError: "repository not found"}, {Domain: "127.0.0.1:33342", Requests: 20, InFlight: 2},
	}
	return s
}

// status returns the status page of a server.
func status(t *testing.T, s *state) string {
	t.Helper()
	page, err := statuspage.New(statuspage.Config{
		Name: domain, Sync: s, Purgatory: git{s}, Version: "v0.1.0", Folder: "/var/lib/graspserver", Links: []statuspage.Link{{Text: "Metrics", Href: "metrics"}, {Text: "Status as JSON", Href: "status.json"}},
		Ready: func(context.Context) error { return nil },
		Explain: func(_ context.Context, question string) (explain.Explanation, error) {
			if question == "nothing" {
				return explain.Explanation{}, errors.New("want an event, a repository or a relay")
			}
			npub, id := nip34.NPub(s.refs[0].Owner), strings.Repeat("3f", 32)
			return explain.Explanation{
				Subject: nip34.SubjectRepo, Asked: s.refs[0].String(), Is: "followed", Repository: &relaysync.RepoFollowState{}, Data: &purgatory.DataState{More: 2}, Answer: []string{
					"Repository " + npub + "/project-000 is hosted here.", "Its announcement is " + id + ", stored.", "It came from wss://relay.ngit.dev, and was judged at 10:36:22.",
					"Stored: 120 events of it and of its 7 patches, pull requests and issues, besides announcements and states.", "wss://relay.ngit.dev is live: 29 of 30 items are complete, and all are followed live.",
					"Maintainers: " + npub + ": is the root", "Its git repository has 2 branches, 1 tag, HEAD is main (ab/cd.git).", "It waits for git object " + id[:40] + " of refs/heads/next.",
					"  asked https://git.example.com/" + npub + "/project-000.git at 10:35:00: it lacked 2 of 5 objects.", "The next attempt to get it is at 10:37:00; 2 in a row did not get everything.",
				},
			}, nil
		},
	})
	require.NoError(t, err)
	return serve(t, page)
}

// query returns a URL with a parameter.
func query(at, name, value string) string { return at + "?" + url.Values{name: {value}}.Encode() }
