//go:build !race

// As in servers_test.go.

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
)

// exported is what our /metrics has: of each metric the labels. What a running server shows is there, and
// what begins when there is something to count.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	out := make(map[string][]string)
	dir := t.TempDir()
	records, err := state.Open(filepath.Join(dir, "records"), state.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, records.Close()) }()
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	db := &slicestore.SliceStore{}
	require.NoError(t, db.Init())
	made, err := grasp.New(t.Context(), khatru.NewRelay(), db, identity, grasp.Config{Dir: filepath.Join(dir, "git"), State: records})
	require.NoError(t, err)
	defer made.Close()
	desc := regexp.MustCompile(`fqName: "(.*?)".*variableLabels: \{(.*?)\}`)
	for _, c := range []prometheus.Collector{made.Collector("ngit"), records.Collector("ngit"), records.Collector("ngit_rules")} {
		ch := make(chan *prometheus.Desc, 1000)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			m := desc.FindStringSubmatch(d.String())
			require.NotNil(t, m)
			out[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	described := len(out)
	out["ngit_build_info"] = []string{"go", "version"} // of this program; docs/operating.md describes it
	require.Greater(t, described, 60)

	addr, admin := freeAddr(t), freeAddr(t)
	_, stop := server(t, options{Listen: addr, Domain: addr, AdminListen: admin})
	defer stop()
	seen := 0
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? [-+0-9.eInfNa]+$`).FindAllStringSubmatch(get(t, "http://"+admin+"/metrics"), -1) {
		ours := strings.HasPrefix(m[1], "ngit_") || strings.HasPrefix(m[1], "purgatory_")
		if !ours {
			out[m[1]] = nil
			continue
		}
		require.Contains(t, out, m[1], "a metric that is not described")
		seen++
	}
	require.Greater(t, seen, 50)
	return out
}

// ofPrometheus are labels that Prometheus adds to all it scrapes.
var ofPrometheus = []string{"job", "instance"}

// checkExpr checks that there is all that an expression names, and that documented label values are meant.
func checkExpr(t *testing.T, where, expr string, have map[string][]string, values string) (labels []string) {
	t.Helper()
	n, err := namesIn(expr)
	require.NoError(t, err, where)
	require.NotEmpty(t, n.metrics, where)
	labels = slices.Clone(ofPrometheus)
	for _, m := range n.metrics {
		if m == "up" { // Prometheus' own
			continue
		}
		require.Contains(t, have, m, "%s: there is no such metric", where)
		labels = append(labels, have[m]...)
	}
	for _, use := range n.labels {
		if use.metric == "" || use.metric == "up" {
			require.Contains(t, labels, use.label, "%s: no metric has this label: %s", where, expr)
			continue
		}
		require.Contains(t, append(slices.Clone(ofPrometheus), have[use.metric]...), use.label, "%s: %s has no such label", where, use.metric)
		if slices.Contains(ofPrometheus, use.label) {
			continue
		}
		for _, v := range use.values {
			require.Regexp(t, `\b`+regexp.QuoteMeta(v)+`\b`, values, "%s: docs/metrics.md does not say what this value of %s means", where, use.label)
		}
	}
	return labels
}

// Dashboard and alerts are about what there is: a metric that is renamed would leave a panel empty and an
// alert silent.
func TestDashboardAndAlertsNameWhatThereIs(t *testing.T) {
	have := exported(t)
	doc, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	values, _, _ := strings.Cut(string(doc), "## Every metric")
	used := make(map[string]bool)
	note := func(expr string) {
		n, err := namesIn(expr)
		require.NoError(t, err)
		for _, m := range n.metrics {
			used[m] = true
		}
	}

	var board struct {
		UID        string
		Templating struct {
			List []struct{ Name, Definition string }
		}
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	data, err := os.ReadFile("deploy/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &board))
	legend := regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	ids, cells := make(map[int]bool), make(map[[2]int]string)
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], "two panels with one id")
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			require.Less(t, x, 24, p.Title)
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, cells[[2]int{x, y}], "%s lies on another panel", p.Title)
				cells[[2]int{x, y}] = p.Title
			}
		}
		require.Equal(t, p.Type == "row", len(p.Targets) == 0, p.Title)
		for _, target := range p.Targets {
			labels := checkExpr(t, "panel "+p.Title, target.Expr, have, values)
			note(target.Expr)
			for _, l := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, labels, l[1], "legend of panel %s", p.Title)
			}
		}
	}
	for _, v := range board.Templating.List {
		if m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition); v.Name != "datasource" {
			require.NotNil(t, m, v.Name)
			require.Contains(t, checkExpr(t, "variable "+v.Name, m[1], have, values), m[2])
		}
	}
	missing := make(map[string]bool) // what an operator who comes from another server looks for, and all that is refused or fails
	for m := range maps.Keys(have) {
		wanted := strings.HasPrefix(m, "ngit_sync_") && m != "ngit_sync_panics_total" ||
			strings.Contains(m, "refused") || strings.Contains(m, "fail") || strings.Contains(m, "damaged_files")
		again := m == "ngit_rules_state_refused_total" // a refused rule is a failed command
		if wanted && !used[m] && !again {
			missing[m] = true
		}
	}
	require.Empty(t, missing, "no panel has these")
	require.Greater(t, len(used), 45)

	for _, r := range alertRules(t) {
		labels := checkExpr(t, "alert "+r.Alert, r.Expr, have, values)
		for _, l := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(r.Annotations["summary"], -1) {
			require.Contains(t, labels, l[1], "summary of alert %s", r.Alert)
		}
	}
}

type rule struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alertRules(t *testing.T) (rules []rule) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []rule }
	}
	data, err := os.ReadFile("deploy/alerts.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(data, &file))
	for _, g := range file.Groups {
		rules = append(rules, g.Rules...)
	}
	require.Greater(t, len(rules), 10)
	return rules
}

// Who is woken by an alert finds what to do about it.
func TestAlertsLeadToTheirRunbook(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	headings := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^### (Grasp\w+)$`).FindAllStringSubmatch(string(doc), -1) {
		headings[strings.ToLower(m[1])] = true
	}
	for _, r := range alertRules(t) {
		anchor := strings.ToLower(r.Alert)
		require.Equal(t, "https://github.com/graspsync/graspsync/blob/main/docs/operating.md#"+anchor, r.Annotations["runbook_url"])
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
		require.True(t, headings[anchor], "docs/operating.md has no heading ### %s", r.Alert)
		delete(headings, anchor)
	}
	require.Empty(t, headings, "headings of alerts that there are not")
}

// The alerts fire when they should, by Prometheus' own judgement, where its tool is installed.
func TestAlertsFire(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: prometheus): the alerts are read, and not tried")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = "deploy"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	tests, err := os.ReadFile("deploy/alerts_test.yaml")
	require.NoError(t, err)
	for _, r := range alertRules(t) {
		require.Contains(t, string(tests), fmt.Sprintf("alertname=%q", r.Alert), "it is not tried")
	}
}
