package statuspage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/internal/web"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

type view struct {
	name, title string
	params      []string // of its URL
	data        func(p *Page, ctx context.Context, s *snapshot, q url.Values) (any, error)
}

// home is the view at /.
const home = "overview"

var views = map[string]*view{
	home:           {home, "Overview", nil, (*Page).overview},
	"relays":       {"relays", "Relays", []string{"q", "state", "sort", "page"}, (*Page).relays},
	"relay":        {"relay", "Relay", []string{"url"}, (*Page).relay},
	"repositories": {"repositories", "Repositories", []string{"q", "page"}, (*Page).repositories},
	"repository":   {"repository", "Repository", []string{"ref"}, (*Page).repository},
	"git":          {"git", "Git data", []string{"q", "page"}, (*Page).git},
	"dropped":      {"dropped", "What was dropped", nil, (*Page).dropped},
	"rules":        {"rules", "Rules", []string{"q", "page"}, (*Page).rules},
	"explain":      {"explain", "Explain", []string{"q"}, (*Page).explain},
}

var views404 = view{title: "Not found"}

const (
	rowsShown    = 50
	maxParam     = 1000 // bytes
	maxQuestions = 4    // under way
	viewTime     = 10 * time.Second
)

func (v *view) query(asked url.Values) url.Values {
	out := make(url.Values)
	for _, name := range v.params {
		if s := strings.TrimSpace(graspsync.Clip(asked.Get(name), maxParam)); s != "" {
			out.Set(name, s)
		}
	}
	return out
}

var (
	errNoGit   = errors.New("this server has no git data")
	errUnknown = errors.New("not followed")
	errNoRules = errors.New("this server has no rules of its operator")
	errAsk     = errors.New("this page does not answer questions")
	errBusy    = errors.New("too many questions, try again in a moment")
)

func statusOf(err error) int {
	switch {
	case errors.Is(err, errNoGit), errors.Is(err, errNoRules), errors.Is(err, errUnknown), errors.Is(err, errAsk), errors.Is(err, relaysync.ErrUnknownRepo):
		return http.StatusNotFound
	}
	return http.StatusServiceUnavailable
}

type overviewData struct {
	At              time.Time
	Name            string
	Ready           string // reason for not being ready, or ""
	Status          relaysync.Status
	Git             *purgatory.Status
	Waits           int // events that wait for git data
	Wanted, Missing int // items of connected relays
	Connected       int
	State, Headline string
	Left            time.Duration // until all git data is here; 0: unknown
	Done            float64       // part that is complete, from 0 to 1
	Empty           bool          // no repository lists the server
	Stored          uint64
	Notices         []notice
}

type notice struct{ Text, Href string }

func (p *Page) overview(ctx context.Context, s *snapshot, _ url.Values) (any, error) {
	d := overviewData{At: s.at, Name: p.cfg.Name, Status: s.sync, Git: s.git, Left: s.left}
	if p.cfg.Ready != nil {
		if err := p.cfg.Ready(ctx); err != nil {
			d.Ready = err.Error()
		}
	}
	dead := 0
	for _, r := range s.sync.Relays {
		if r.Connected() {
			d.Connected++
			d.Wanted += r.Wanted
			d.Missing += r.Missing()
		}
		if r.Health == "dead" {
			dead++
		}
	}
	for _, n := range s.sync.Events.Sources {
		d.Stored += n
	}
	if s.git != nil {
		d.Waits = waiting(s.git)
	}
	d.State, d.Headline = explain.Headline(s.sync)
	switch git := s.sync.Git; {
	case s.sync.Synced:
		d.Done = 1
	case git.Missing > 0:
		d.Done = float64(git.Complete) / float64(git.All())
	case d.Wanted > 0:
		d.Done = min(0.99, float64(d.Wanted-d.Missing)/float64(d.Wanted)) // something is missing
	}
	d.Empty = s.sync.Repos+s.sync.Git.All() == 0 && !s.sync.Unread && s.sync.StoreError == ""
	d.Notices = notices(s, d.Connected, dead)
	return d, nil
}

func waiting(g *purgatory.Status) int {
	return g.Announcements + g.States + g.PullRequests + g.Relatives
}

func notices(s *snapshot, connected, dead int) (out []notice) {
	say := func(is bool, text, href string) {
		if is {
			out = append(out, notice{text, href})
		}
	}
	known, e := len(s.sync.Relays), s.sync.Events
	say(s.sync.StoreError != "", "The store could not be read, and is tried again: "+web.Text(s.sync.StoreError)+".", "")
	failures := s.sync.Failures
	if s.git != nil {
		failures = slices.Concat(failures, s.git.Failures)
	}
	for _, f := range failures {
		say(true, fmt.Sprintf("%s fails (%s times in a row, for the first time %s): %s.", f.Of, web.Number(f.Count), web.Ago(s.at, f.Since), web.Text(f.Error)), "")
	}
	say(known > 0 && connected == 0, "No relay is connected.", "relays")
	say(e.Dropped["unsaved"] > 0, web.Number(e.Dropped["unsaved"])+" events could not be saved; they are fetched again.", "dropped")
	panics := e.Panics
	if s.git != nil {
		panics = maps.Clone(panics)
		if panics == nil {
			panics = make(map[string]uint64)
		}
		for whose, n := range s.git.Panics {
			panics[whose] += n
		}
	}
	say(len(panics) > 0, "A panic was contained. It is a bug, and the log has the stack.", "dropped")
	var lasting, strikes uint64
	for _, r := range s.sync.Relays {
		lasting += r.Lasting
		strikes += r.Strikes
	}
	say(lasting > 0, web.Number(lasting)+" events were found only by the daily pass, although a live subscription should have brought them.", "relays?state=gaps")
	say(dead > 0, web.Number(dead)+" of "+web.Number(known)+" relays have failed for a day, and are tried once a day.", "relays?state=dead")
	say(strikes > 0, web.Number(strikes)+" times a relay was proven hostile.", "relays?sort=gaps")
	if s.git != nil {
		say(s.git.Expired > 0, web.Number(s.git.Expired)+" events expired since the start, because their git data never arrived.", "git")
		say(s.git.Fetches >= 20 && s.git.Failed*10 > s.git.Fetches*9, "More than nine of ten requests for git data failed.", "git")
	}
	return out
}

type relaysData struct {
	At             time.Time
	Q, State, Sort string
	States, Sorts  []string
	Rows           []relaysync.RelayStatus
	Paging         web.Paging
}

var (
	shownStates = []string{"all", "connected", "not connected", "dead", "gaps"}
	relaySorts  = []string{"name", "gaps", "missing", "events", "failures"}
)

func (p *Page) relays(_ context.Context, s *snapshot, q url.Values) (any, error) {
	d := relaysData{At: s.at, Q: q.Get("q"), State: cmp.Or(q.Get("state"), "all"), Sort: cmp.Or(q.Get("sort"), "name"), States: shownStates, Sorts: relaySorts}
	word := strings.ToLower(d.Q)
	var rows []relaysync.RelayStatus
	for _, r := range s.sync.Relays {
		shown := true
		switch d.State {
		case "connected":
			shown = r.Connected()
		case "not connected":
			shown = !r.Connected()
		case "dead":
			shown = r.Health == "dead"
		case "gaps":
			shown = r.Gaps+r.Lasting+r.Unserved+r.Seconds > 0 || r.GapBatches > 0
		}
		if shown && (word == "" || strings.Contains(strings.ToLower(r.URL.String()+" "+r.Software+" "+r.LastError), word)) {
			rows = append(rows, r)
		}
	}
	most := func(of func(r relaysync.RelayStatus) uint64) {
		slices.SortStableFunc(rows, func(a, b relaysync.RelayStatus) int { return cmp.Compare(of(b), of(a)) })
	}
	slices.SortFunc(rows, func(a, b relaysync.RelayStatus) int { return cmp.Compare(a.URL.String(), b.URL.String()) })
	switch d.Sort {
	case "gaps":
		most(func(r relaysync.RelayStatus) uint64 { return r.Gaps + r.Lasting + r.Unserved + r.Strikes })
	case "missing":
		most(func(r relaysync.RelayStatus) uint64 { return uint64(r.Missing()) })
	case "events":
		most(func(r relaysync.RelayStatus) uint64 { return r.Stored })
	case "failures":
		most(func(r relaysync.RelayStatus) uint64 { return uint64(max(0, r.Failures)) })
	}
	d.Rows, d.Paging = web.PageOf(rows, rowsShown, len(s.sync.Relays), q)
	return d, nil
}

type relayData struct {
	At      time.Time
	Asks    bool
	R       relaysync.RelayStatus
	Learned []counted
}

func (p *Page) relay(_ context.Context, s *snapshot, q url.Values) (any, error) {
	u, err := graspsync.ParseRelayURL(q.Get("url"))
	if err == nil {
		for _, r := range s.sync.Relays {
			if r.URL == u {
				learned := make(map[string]uint64)
				for k, v := range r.Learned {
					learned[k] = uint64(max(0, v))
				}
				return relayData{s.at, p.cfg.Explain != nil, r, sorted(learned)}, nil
			}
		}
	}
	return nil, errUnknown
}

type repositoriesData struct {
	At     time.Time
	Q      string
	Rows   []repositoryRow
	Paging web.Paging
}

type repositoryRow struct {
	relaysync.RepoStatus
	Connected, Live, Missed, Lacks int
}

func (p *Page) repositories(ctx context.Context, s *snapshot, q url.Values) (any, error) {
	all, err := p.cfg.Sync.RepoRefs(ctx)
	if err != nil {
		return nil, err
	}
	d := repositoriesData{At: s.at, Q: q.Get("q")}
	refs := all
	if d.Q != "" {
		refs = nil
		word := strings.ToLower(d.Q)
		for _, ref := range all {
			if strings.Contains(strings.ToLower(ref.String()), word) || strings.Contains(word, "npub1") && strings.Contains(nip34.NPub(ref.Owner)+"/"+ref.Identifier, word) {
				refs = append(refs, ref)
			}
		}
	}
	refs, d.Paging = web.PageOf(refs, rowsShown, len(all), q)
	rows, err := p.cfg.Sync.RepoSummaries(ctx, refs...)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		row := repositoryRow{RepoStatus: r}
		for _, rel := range r.Relays {
			if (relaysync.RelayStatus{Phase: rel.Phase}).Connected() {
				row.Connected++
			}
			if rel.Live {
				row.Live++
			}
			row.Missed += rel.Missed
			row.Lacks += rel.Lacks
		}
		d.Rows = append(d.Rows, row)
	}
	return d, nil
}

type repositoryData struct {
	At      time.Time
	Asks    bool
	R       relaysync.RepoStatus
	Waiting []purgatory.EntryStatus
}

func (p *Page) repository(ctx context.Context, s *snapshot, q url.Values) (any, error) {
	ref, err := graspsync.ParseRepoRef(q.Get("ref"))
	if err != nil {
		return nil, errUnknown
	}
	d := repositoryData{At: s.at, Asks: p.cfg.Explain != nil}
	d.R, err = p.cfg.Sync.RepoStatus(ctx, ref)
	if err == nil && s.git != nil {
		for _, e := range s.git.Waiting {
			if slices.Contains(e.Repos, ref.String()) {
				d.Waiting = append(d.Waiting, e)
			}
		}
	}
	return d, err
}

type gitData struct {
	At      time.Time
	Asks    bool
	Q       string
	G       purgatory.Status
	Waits   int
	Domains []purgatory.DomainStatus
	Paging  web.Paging
}

func (p *Page) git(_ context.Context, s *snapshot, q url.Values) (any, error) {
	if s.git == nil {
		return nil, errNoGit
	}
	shown := *s.git
	shown.Waiting = shown.Waiting[:min(len(shown.Waiting), rowsShown)]
	d := gitData{At: s.at, Asks: p.cfg.Explain != nil, Q: q.Get("q"), G: shown, Waits: waiting(s.git)}
	var rows []purgatory.DomainStatus
	for _, r := range s.git.Domains {
		if word := strings.ToLower(d.Q); word == "" || strings.Contains(strings.ToLower(r.Domain+" "+r.LastError), word) {
			rows = append(rows, r)
		}
	}
	d.Domains, d.Paging = web.PageOf(rows, rowsShown, len(s.git.Domains), q)
	return d, nil
}

type counted struct {
	Name string
	N    uint64
}

func sorted(counts map[string]uint64) (out []counted) {
	for name, n := range counts {
		out = append(out, counted{name, n})
	}
	slices.SortFunc(out, func(a, b counted) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
	return out
}

type droppedData struct {
	At                                              time.Time
	HasGit                                          bool
	E                                               relaysync.EventStatus
	Sync, Git, Rejected, Panics, GitPanics, Learned []counted
	Synced, Direct                                  uint64 // stored events
}

func (p *Page) dropped(_ context.Context, s *snapshot, _ url.Values) (any, error) {
	e := s.sync.Events
	d := droppedData{
		At: s.at, E: e, Sync: sorted(e.Dropped), Rejected: sorted(e.Rejected), Panics: sorted(e.Panics), Learned: sorted(e.Learned),
	}
	for kind, n := range e.Sources {
		if kind == graspsync.Direct.String() {
			d.Direct = n
		} else {
			d.Synced += n
		}
	}
	d.Rejected = d.Rejected[:min(len(d.Rejected), 2*rowsShown)]
	if s.git != nil {
		d.HasGit, d.Git, d.GitPanics = true, sorted(s.git.Dropped), sorted(s.git.Panics)
	}
	return d, nil
}

type rulesData struct {
	At     time.Time
	Q      string
	Rows   []Rule
	Paging web.Paging
}

func (p *Page) rules(_ context.Context, s *snapshot, q url.Values) (any, error) {
	if p.cfg.Rules == nil {
		return nil, errNoRules
	}
	all := p.cfg.Rules()
	d := rulesData{At: s.at, Q: q.Get("q")}
	word := strings.ToLower(d.Q)
	rows := slices.DeleteFunc(slices.Clone(all), func(r Rule) bool {
		return !strings.Contains(strings.ToLower(r.Action+" "+r.About+" "+subject(r)+" "+r.Subject+" "+r.By+" "+r.Reason), word)
	})
	d.Rows, d.Paging = web.PageOf(rows, rowsShown, len(all), q)
	return d, nil
}

type explainData struct {
	Question, Error string
	X               explain.Explanation
	State, Verdict  string
}

func (p *Page) explain(ctx context.Context, _ *snapshot, q url.Values) (any, error) {
	if p.cfg.Explain == nil {
		return nil, errAsk
	}
	d := explainData{Question: q.Get("q")}
	if d.Question == "" {
		return d, nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	default:
		return nil, errBusy
	}
	var err error
	if d.X, err = p.cfg.Explain(ctx, d.Question); err != nil {
		d.Error = err.Error()
	}
	d.State, d.Verdict = d.X.Verdict()
	return d, nil
}
