package purgatoryadapter_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/statuspage"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// standing is the state of a server at one moment, from each of its reports.
type standing struct {
	status relaysync.Status
	page   string
	json   struct {
		Synced bool
		Git    struct{ Complete, Missing, Unobtainable int }
	}
	metrics map[string]float64
}

func (r *rig) standing() (s standing) {
	r.t.Helper()
	s.status = r.manager.Status()
	text, err := json.Marshal(s.status)
	require.NoError(r.t, err)
	require.NoError(r.t, json.Unmarshal(text, &s.json))
	page, err := statuspage.New(statuspage.Config{Sync: r.manager, Purgatory: r.waits, Explain: explain.Explainer{Sync: r.manager}.Explain})
	require.NoError(r.t, err)
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequestWithContext(r.t.Context(), http.MethodGet, "/", nil))
	s.page = answer.Body.String()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.manager.Collector("ngit"))
	families, err := registry.Gather()
	require.NoError(r.t, err)
	s.metrics = make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			s.metrics[name] = m.GetGauge().GetValue()
		}
	}
	return s
}

// agrees checks that all reports agree.
func (s standing) agrees(t *testing.T) {
	t.Helper()
	g := s.status.Git
	require.Equal(t, s.status.Synced, s.json.Synced)
	require.Equal(t, s.status.Synced, s.metrics["ngit_sync_synced"] == 1)
	require.Equal(t, s.status.Synced, strings.Contains(s.page, "In sync"))
	require.Equal(t, []int{g.Complete, g.Missing, g.Unobtainable}, []int{s.json.Git.Complete, s.json.Git.Missing, s.json.Git.Unobtainable})
	if g.All() > 0 {
		require.InDelta(t, g.Complete, s.metrics["ngit_sync_repositories complete"], 0)
		require.InDelta(t, g.Missing, s.metrics["ngit_sync_repositories missing"], 0)
		require.InDelta(t, g.Unobtainable, s.metrics["ngit_sync_repositories unobtainable"], 0)
	}
	if g.Missing > 0 {
		require.False(t, s.status.Synced)
		if len(s.status.Relays) > 0 && s.status.Relays[0].Phase == "live" {
			require.Contains(t, s.page, fmt.Sprintf("Catching up: %d of %d repositories", g.Complete, g.All()))
		}
	}
}

// hub publishes repositories whose git data is on a git server, and returns their events.
func (r *rig) hub(n int, domain string, has ...nip34.ObjectID) (events []*nostr.Event) {
	for i := range n {
		k := relaytest.NewCheapKey(fmt.Sprint(domain, i))
		url := fmt.Sprintf("https://%s/repo%d.git", domain, i)
		clone, err := graspsync.ParseCloneURL(url)
		require.NoError(r.t, err)
		r.git.Serve(clone, fetchtest.Server{Objects: has})
		events = append(events,
			k.Announcement(at(time.Hour), "repo", []string{"wss://" + us, "wss://a.example"}, []string{k.CloneURL("wss://"+us, "repo"), url}),
			k.State(at(time.Hour), "repo", map[string]string{"refs/heads/main": commit}, "main"))
	}
	return events
}

// Page, log, JSON and metrics reported "in sync" while 85 of 120 repositories waited for a git
// server that gets 30 requests a minute.
func TestCaseC18_SyncedIsAboutGitDataToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		id, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		after(10 * time.Second)
		events := r.hub(120, "git.example", id)
		r.net.Add("wss://a.example", relaytest.Behavior{}).Publish(events...)
		began, halfway := time.Now(), false
		for r.all(events) < len(events) {
			require.Less(t, time.Since(began), 10*time.Minute)
			after(3 * time.Second)
			s := r.standing()
			s.agrees(t)
			complete := r.all(events) / 2
			if g := s.status.Git; g.All() == 120 && complete < 120 {
				require.False(t, s.status.Synced, "%d of 120", complete)
				require.Zero(t, g.Unobtainable)
			}
			if complete >= 35 && complete < 90 && s.status.Relays[0].Synced {
				halfway = true
				require.Regexp(t, `\b[3-8][0-9] of 120 repositories`, s.page)
			}
		}
		require.True(t, halfway)
		after(10 * time.Second)
		s := r.standing()
		s.agrees(t)
		require.True(t, s.status.Synced)
		require.Equal(t, relaysync.GitStatus{Complete: 120}, s.status.Git)
	})
}

// A store that fails to save released events is shown on the page until it works.
func TestCaseC20_FailureIsOnThePage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer func() { r.stop() }()
		id, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		r.failing.Store(true)
		events := r.hub(1, "git.example", id)
		r.net.Add("wss://a.example", relaytest.Behavior{}).Publish(events...)
		after(5 * time.Minute)
		require.Regexp(t, `relay save(</bdi>)? fails`, r.standing().page)
		require.Contains(t, r.standing().page, errDisk.Error())
		r.failing.Store(false)
		after(10 * time.Minute)
		require.NotContains(t, r.standing().page, errDisk.Error())
		require.Len(t, events, r.all(events))
	})
}
