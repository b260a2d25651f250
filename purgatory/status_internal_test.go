package purgatory

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// Each number in the status and each metric is the counter of the same name.
func TestStatusIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPurgatory(nil, nil, nil, state.NewMemory(), Config{}.withDefaults(), func(string) {}, 1)
		put := func(n int, class refplan.Class, e refplan.Entry) {
			e.ID, e.Class, e.Seen, e.Size = graspsync.EventID{byte(class), byte(n)}, class, time.Unix(int64(n), 0).UTC(), int64(class)
			e.Deadline = time.Unix(int64(10_000*int(class)-2*n), 0).UTC()
			e.Repos = []graspsync.RepoRef{{Owner: graspsync.PubKey{9}, Identifier: fmt.Sprint(class)}}
			e.Author = graspsync.PubKey{byte(n)}
			if class == refplan.Announcement {
				e.Repos[0].Identifier += fmt.Sprint(n)
			}
			p.pending.fill(&e)
		}
		for n := range 2 {
			put(n, refplan.Announcement, refplan.Entry{Soft: n == 1})
		}
		for n := range 3 {
			put(n, refplan.State, refplan.Entry{ByUser: n == 2})
		}
		for n := range 95 {
			put(n, refplan.PullRequest, refplan.Entry{})
		}
		for n := range 2 {
			put(n, refplan.Relative, refplan.Entry{For: graspsync.PubKey{9}})
		}
		two := graspsync.RepoRef{Owner: graspsync.PubKey{9}, Identifier: "state"}
		p.table.change(two, func(s *repoState) { s.need = refplan.Need{IDs: make([]nip34.ObjectID, 3)} })
		s := p.report
		s.held.Store(11)
		for reason := Released; reason <= Unwanted; reason++ {
			s.ends[reason].Store(20 + uint64(reason))
		}
		s.fetches.Store(50)
		s.failed.Store(13)
		s.objects.Store(31)
		s.bytes.Store(32)
		s.unreadable.Store(33)
		s.queue.Store(34)
		s.drop("one")
		s.dropSome("two", 2)
		s.dropSome("none", 0)
		s.dropSome("less", -1)
		s.countPanic("git")
		s.countPanic("git")
		end := s.request("a.example")
		s.request("a.example")
		s.request("b.example")
		end(errors.New("no answer"))
		p.maintenance.status = MaintenanceStatus{
			Runs: 61, Failed: 7, Pruned: 62, Took: 63 * time.Second, Locked: 64 * time.Second, Removed: 65, Freed: -66, Packs: 67, LooseRefs: 68,
		}
		for n := range 4 {
			p.maintenance.add(graspsync.RepoRef{Identifier: fmt.Sprint(n)})
		}
		st := p.Status()
		require.Equal(t, time.Now(), st.At)
		st.At = time.Time{}
		require.Len(t, st.Waiting, StatusEntries)
		st.Waiting = append(st.Waiting[:6], st.Waiting[StatusEntries-1])
		text, err := json.MarshalIndent(st, "", " ")
		require.NoError(t, err)
		goldentest.Equal(t, "testdata/status.json", string(text)+"\n")

		of := make(map[string]string)
		for _, namespace := range []string{"", "of"} {
			reg := prometheus.NewPedanticRegistry()
			require.NoError(t, reg.Register(p.Collector(namespace)))
			families, err := reg.Gather()
			require.NoError(t, err)
			var lines []string
			for _, f := range families {
				for _, m := range f.GetMetric() {
					line := fmt.Sprint(f.GetName(), " ", f.GetType(), " ")
					for _, l := range m.GetLabel() {
						line += fmt.Sprint(l.GetName(), "=", l.GetValue(), " ")
					}
					lines = append(lines, line+fmt.Sprintln(m.GetGauge().GetValue()+m.GetCounter().GetValue()))
				}
			}
			slices.Sort(lines)
			of[namespace] = strings.Join(lines, "")
		}
		goldentest.Equal(t, "testdata/metrics.txt", of[""])
		require.Equal(t, of["of"], strings.ReplaceAll(of[""], "purgatory_", "of_purgatory_"))
	})
}
