package purgatory

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// What an event of each kind must say is what makes it one that can wait: without it, it is
// refused, and it is not read from a disk either.
func TestMalformedEventsAreNone(t *testing.T) {
	d, c := nostr.Tag{"d", "r"}, nostr.Tag{"c", strings.Repeat("1", 40)}
	a := nostr.Tag{"a", "30617:" + seedKey + ":r"}
	for kind, tags := range map[int]nostr.Tags{
		graspsync.KindAnnouncement: {d}, graspsync.KindState: {d},
		graspsync.KindPullRequest: {a, c}, graspsync.KindPullRequestUpdate: {a, c},
	} {
		whole, err := entryOf(eventtest.Of(signedBy(kind, "", tags...)), false)
		require.NoError(t, err, kind)
		for i := range tags {
			without := append(append(nostr.Tags{}, tags[:i]...), tags[i+1:]...)
			ev := signedBy(kind, "", without...)
			_, err := entryOf(eventtest.Of(ev), false)
			require.Error(t, err, kind)
			require.NotErrorIs(t, err, errNotOurs, kind)
			id, err := graspsync.ParseEventID(ev.ID)
			require.NoError(t, err)
			text, err := json.Marshal(record{Class: whole.Class, Event: ev, Seen: time.Unix(1, 0), Deadline: time.Unix(2, 0)})
			require.NoError(t, err)
			_, err = decode(id, text)
			require.ErrorIs(t, err, errRecord, kind)
			p := &Purgatory{intake: &intake{report: newReport(&Config{Logger: slog.New(slog.DiscardHandler)})}} // nothing else is asked
			answer, err := p.Submit(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp})
			require.NoError(t, err)
			require.Equal(t, Refused, answer.Decision)
			require.Regexp(t, "^invalid: the [dc] tag is missing|^invalid: .*repository", answer.Reason)
		}
	}
	for _, none := range []graspsync.Event{{}, {Event: signedBy(graspsync.KindAnnouncement, "", nostr.Tag{"d", "r"})}} {
		_, err := (&Purgatory{}).Submit(t.Context(), none, graspsync.Source{})
		require.ErrorIs(t, err, graspsync.ErrEvent, "nobody has parsed it")
		(&Purgatory{}).Arrived(none)
		(&Purgatory{}).Departed(none)
	}
	answer, err := (&Purgatory{}).Submit(t.Context(), eventtest.Of(signedBy(1, "hello")), graspsync.Source{Kind: graspsync.CatchUp})
	require.NoError(t, err)
	require.Equal(t, Answer{Decision: Pass}, answer)
}

// Lists of repositories on the disk are read up to the longest that can be written, and no
// text is taken for a repository that is none.
func TestReposOfARecord(t *testing.T) {
	list := func(n int) (out []string) {
		for i := range n {
			out = append(out, graspsync.RepoRef{Owner: graspsync.PubKey{1}, Identifier: fmt.Sprint(i)}.String())
		}
		return out
	}
	for n, fits := range map[int]bool{0: true, 1: true, 2 * ledger.MaxPushed: true, 2*ledger.MaxPushed + 1: false} {
		refs, err := refsIn(list(n))
		if require.Equal(t, fits, err == nil, n); fits {
			require.Len(t, refs, n)
			require.Equal(t, list(n), texts(refs)[:n:n])
		} else {
			require.ErrorIs(t, err, errRecord)
		}
	}
	for _, e := range entriesToKeep(t) {
		data, err := encode(e)
		require.NoError(t, err)
		var r record
		require.NoError(t, json.Unmarshal(data, &r))
		for what, spoil := range map[string]func(r *record){
			"repo":   func(r *record) { r.Repo = "none" },
			"repos":  func(r *record) { r.Repos = append(r.Repos, "none") },
			"strays": func(r *record) { r.Strays = append(r.Strays, "none") },
		} {
			spoilt := r
			spoil(&spoilt)
			data, err := json.Marshal(spoilt)
			require.NoError(t, err)
			if _, err = decode(e.ID, data); e.Class == ledger.Placeholder || what == "strays" {
				require.ErrorIs(t, err, errRecord, what)
			} else {
				require.NoError(t, err, "of no meaning for others")
			}
		}
	}
}

// A hash that was kept is read if it is one, and only then.
func TestHashesOfARecord(t *testing.T) {
	var to [4]byte
	for s, ok := range map[string]bool{"01020304": true, "0102030": false, "010203045": false, "0102030405": false, "0102030g": false, "": false} {
		err := decodeHex(to[:], s)
		require.Equal(t, ok, err == nil, s)
		if !ok {
			require.ErrorIs(t, err, errRecord)
		}
	}
	require.Equal(t, "01020304", hex.EncodeToString(to[:]))
}

// The engine is told of so much at once. Beyond that it is told that it must look at everything,
// once; what it has started itself always has room.
func TestInboxIsBounded(t *testing.T) {
	p := &Purgatory{report: newReport(&Config{})}
	p.inbox = newInbox(p.report)
	for n := range maxInbox {
		p.inbox.tell(n)
	}
	dropped, _ := p.report.byName()
	require.Empty(t, dropped)
	p.inbox.tell("more")
	p.inbox.tell("more")
	p.inbox.put("ours")
	dropped, _ = p.report.byName()
	require.EqualValues(t, 2, dropped["inbox"])
	items, lost := p.inbox.take()
	require.True(t, lost)
	require.Len(t, items, maxInbox+1)
	require.Equal(t, "ours", items[maxInbox])
	items, lost = p.inbox.take()
	require.False(t, lost)
	require.Empty(t, items)
}

// So many servers have metrics of their own; the others share a label, and each is counted
// where it began.
func TestServersWithMetricsOfTheirOwn(t *testing.T) {
	var s report
	var ends []func(error) time.Duration
	for range 2 {
		for n := range maxDomains + 3 {
			ends = append(ends, s.request(fmt.Sprintf("%d.example", n)))
		}
	}
	got := s.domains()
	require.Len(t, got, maxDomains+1)
	for domain, n := range map[string]int{fmt.Sprintf("%d.example", maxDomains-1): 2, otherDomains: 6} {
		require.Equal(t, n, got[domain].inFlight)
		require.EqualValues(t, n, got[domain].requests)
	}
	for _, end := range ends[1:] {
		end(nil)
	}
	ends[0](errors.New("no\x1b[2J git here"))
	for domain, d := range s.domains() {
		require.Zero(t, d.inFlight, domain)
		require.Positive(t, d.requests, domain)
	}
	all := s.domainStatuses()
	require.Len(t, all, maxDomains+1)
	require.Equal(t, otherDomains, all[maxDomains].Domain, "it is nobody's name, and comes last")
	require.Equal(t, "0.example", all[0].Domain)
	require.EqualValues(t, 1, all[0].Failed)
	require.Equal(t, `no\x1b[2J git here`, all[0].LastError)
	require.False(t, all[0].LastFailure.IsZero())
	require.Zero(t, all[1].Failed)
	require.True(t, all[1].LastFailure.IsZero())
}

// What waits with its data here counts until it has a ref, and not for itself.
func TestWhatWaitsCountsUntilItHasARef(t *testing.T) {
	_, x := displacing()
	one, other := &nip34.PullRequest{ID: graspsync.EventID{1}}, &nip34.PullRequest{ID: graspsync.EventID{2}}
	ref := graspsync.RepoRef{Identifier: "r"}
	asks := func(pulls ...*nip34.PullRequest) asked {
		return asked{&repository{Repository: &resolve.Repository{Ref: ref}}, pulls, -1}
	}
	x.displacement.placed(ref, one.ID, 99)
	require.Empty(t, x.displacement.displaced)
	x.displacement.displace(ref, 30)
	began := time.Now()
	require.EqualValues(t, 5+7+10, x.displacement.pruned(ref, began, 30, 5, map[graspsync.EventID]int64{one.ID: 7, other.ID: 10}))
	require.Equal(t, began, x.displacement.at(ref).since)
	require.EqualValues(t, 22, x.displacement.besides(asks(), nil, nil))
	require.EqualValues(t, 15, x.displacement.besides(asks(one), nil, nil))
	require.EqualValues(t, 12, x.displacement.besides(asks(one, other), nil, []graspsync.EventID{one.ID}))
	require.EqualValues(t, 5, x.displacement.besides(asks(one, other), nil, nil))
	x.displacement.placed(ref, one.ID, 99)
	x.displacement.placed(ref, one.ID, 99)
	require.EqualValues(t, 15, x.displacement.at(ref).bytes)
	x.displacement.placed(ref, other.ID, 99)
	require.EqualValues(t, 5, x.displacement.at(ref).bytes)
	require.Zero(t, x.displacement.pruned(ref, began, 5, 0, nil))
	require.EqualValues(t, 3, x.displacement.pruned(ref, began, 0, 9, map[graspsync.EventID]int64{one.ID: 3}), "after a restart")
	x.displacement.placed(ref, one.ID, 99)
	require.Empty(t, x.displacement.displaced)
}

// What is fetched counts but for what refs are found to need, or waits of it, once each.
func TestWhatIsFetchedCountsOnce(t *testing.T) {
	cfg, x := displacing()
	ref := graspsync.RepoRef{Identifier: "r"}
	one, other := &nip34.PullRequest{ID: graspsync.EventID{1}}, &nip34.PullRequest{ID: graspsync.EventID{2}}
	asks := func(pulls ...*nip34.PullRequest) asked {
		return asked{&repository{Repository: &resolve.Repository{Ref: ref}}, pulls, -1}
	}
	x.displacement.displace(ref, 3)
	x.displacement.fetched(ref, 0)
	x.displacement.fetched(ref, 40)
	require.EqualValues(t, 43, x.displacement.at(ref).bytes)
	weights := map[graspsync.EventID]int64{one.ID: 10, other.ID: 50}
	require.EqualValues(t, 33, x.displacement.besides(asks(one), weights, nil))
	require.EqualValues(t, 3, x.displacement.besides(asks(one, other), weights, nil))
	require.EqualValues(t, 33, x.displacement.besides(asks(one, other), weights, []graspsync.EventID{other.ID}))
	x.displacement.placed(ref, one.ID, 10)
	require.EqualValues(t, 33, x.displacement.at(ref).bytes)
	x.displacement.came(ref, map[graspsync.EventID]int64{other.ID: 20})
	require.EqualValues(t, 33, x.displacement.at(ref).bytes)
	require.EqualValues(t, 13, x.displacement.besides(asks(other), weights, nil))
	x.displacement.placed(ref, graspsync.EventID{3}, 15)
	require.EqualValues(t, 23, x.displacement.at(ref).bytes, "no more than has come")
	x.displacement.came(ref, map[graspsync.EventID]int64{{4}: 7})
	require.EqualValues(t, 30, x.displacement.at(ref).bytes)
	cfg.NoMaintenance = true
	x.displacement.fetched(ref, 5)
	require.EqualValues(t, 30, x.displacement.at(ref).bytes)
}

// Pull requests are weighed so that nobody's many keep others' from that.
func TestInTurns(t *testing.T) {
	var pulls, want []*nip34.PullRequest
	for _, p := range []struct {
		author byte
		at     int64
	}{{1, 90}, {2, 50}, {3, 10}, {1, 80}, {2, 40}, {1, 70}, {1, 60}} { // as they should be
		want = append(want, &nip34.PullRequest{
			ID: graspsync.EventID{byte(p.at)}, Author: graspsync.PubKey{p.author}, CreatedAt: nostr.Timestamp(p.at),
		})
	}
	for _, i := range rand.Perm(len(want)) {
		pulls = append(pulls, want[i])
	}
	require.Equal(t, want, inTurns(pulls))
	same := []*nip34.PullRequest{{ID: graspsync.EventID{2}}, {ID: graspsync.EventID{1}}}
	require.Equal(t, graspsync.EventID{1}, inTurns(same)[0].ID)
}

// displacing are rations of which nothing but the displacement is used.
func displacing() (*Config, *rations) {
	cfg, git := &Config{Limits: Limits{MaxPullBytes: 100}}, containedGit{}
	report := newReport(cfg)
	return cfg, newRations(cfg, report, git, nil, nil, nil, nil, newDisplacement(cfg, git, newSchedule(report)))
}

// What has given way is counted in so many repositories at most, and for none that has left.
func TestDisplacedIsBounded(t *testing.T) {
	cfg, x := displacing()
	refs := make([]graspsync.RepoRef, maxUpkeep+2)
	for i := range refs {
		refs[i].Owner = graspsync.PubKey{byte(i), byte(i >> 8), byte(i >> 16)}
		x.displacement.displace(refs[i], 1)
	}
	require.Len(t, x.displacement.displaced, maxUpkeep)
	last := refs[len(refs)-1]
	require.EqualValues(t, 1, x.displacement.at(last).bytes)
	x.displacement.displace(last, 2)
	require.Len(t, x.displacement.displaced, maxUpkeep, "it is one of them")
	require.EqualValues(t, 3, x.displacement.at(last).bytes)
	x.displacement.displace(last, 0)
	x.displacement.displace(last, -1)
	require.EqualValues(t, 3, x.displacement.at(last).bytes)
	require.EqualValues(t, 2, x.displacement.pruned(last, time.Now(), 3, 2, nil))
	require.EqualValues(t, 2, x.displacement.at(last).bytes)
	require.Zero(t, x.displacement.pruned(last, time.Now(), 2, 0, nil))
	require.Zero(t, x.displacement.pruned(last, time.Now(), 0, 5, nil), "nothing was displaced")
	require.Zero(t, x.displacement.pruned(last, time.Now(), 1, 5, map[graspsync.EventID]int64{{1}: 7}), "it has left")
	require.NotContains(t, x.displacement.displaced, last)
	require.Empty(t, x.displacement.crowded())
	x.displacement.displace(last, 49)
	require.Empty(t, x.displacement.crowded())
	x.displacement.displace(last, 1)
	require.Equal(t, []graspsync.RepoRef{last}, x.displacement.crowded(), "half of what pull requests may take up")
	cfg.NoMaintenance = true
	x.displacement.displace(refs[0], 50)
	require.Len(t, x.displacement.crowded(), 1, "nobody would say that it is gone")
}

// Weights are remembered of so many repositories.
func TestWeightsAreBounded(t *testing.T) {
	_, x := displacing()
	for n := range maxWalked + 2 {
		r := &repository{Repository: &resolve.Repository{Ref: graspsync.RepoRef{Identifier: fmt.Sprint(n)}}}
		x.note(asked{r, nil, -1}, answered{weighed: weighed{of: map[graspsync.EventID]int64{{1}: 5}}})
		x.note(asked{r, nil, -1}, answered{weighed: weighed{of: map[graspsync.EventID]int64{{1}: 6}}})
	}
	require.Len(t, x.weights, maxWalked)
	require.EqualValues(t, 6, x.weights[graspsync.RepoRef{Identifier: fmt.Sprint(maxWalked + 1)}].of[graspsync.EventID{1}])
	require.NotContains(t, x.weights, graspsync.RepoRef{})
}
