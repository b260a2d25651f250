package statuspage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	home:     {home, "Overview", nil, (*Page).overview},
	"relays": {"relays", "Relays", []string{"q", "state", "page"}, (*Page).relays},

	"repositories": {"repositories", "Repositories", []string{"q", "page"}, (*Page).repositories},

	"git": {"git", "Git data", []string{"q", "page"}, (*Page).git},

	"explain": {"explain", "Explain", []string{"q"}, (*Page).explain},
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
	errNoGit = errors.New("this server has no git data")
	errBusy  = errors.New("too many questions, try again in a moment")
)

func statusOf(err error) int {
	if errors.Is(err, errNoGit) {
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
	say(e.Dropped["unsaved"] > 0, web.Number(e.Dropped["unsaved"])+" events could not be saved; they are fetched again.", "")
	say(len(e.Panics) > 0 || s.git != nil && len(s.git.Panics) > 0, "A panic was contained. It is a bug, and the log has the stack.", "")
	var lasting, strikes uint64
	for _, r := range s.sync.Relays {
		lasting += r.Lasting
		strikes += r.Strikes
	}
	say(lasting > 0, web.Number(lasting)+" events were found only by the daily pass, although a live subscription should have brought them.", "relays?state=gaps")
	say(dead > 0, web.Number(dead)+" of "+web.Number(known)+" relays have failed for a day, and are tried once a day.", "relays?state=dead")
	say(strikes > 0, web.Number(strikes)+" times a relay was proven hostile.", "relays?state=gaps")
	if s.git != nil {
		say(s.git.Expired > 0, web.Number(s.git.Expired)+" events expired since the start, because their git data never arrived.", "git")
		say(s.git.Fetches >= 20 && s.git.Failed*10 > s.git.Fetches*9, "More than nine of ten requests for git data failed.", "git")
	}
	return out
}

type relaysData struct {
	At       time.Time
	Q, State string
	States   []string
	Rows     []relaysync.RelayStatus
	Paging   web.Paging
}

var shownStates = []string{"all", "connected", "not connected", "dead", "gaps"}

func (p *Page) relays(_ context.Context, s *snapshot, q url.Values) (any, error) {
	d := relaysData{At: s.at, Q: q.Get("q"), State: cmp.Or(q.Get("state"), "all"), States: shownStates}
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
			shown = r.Gaps+r.Lasting+r.Unserved+r.Seconds+r.Strikes > 0 || r.GapBatches > 0
		}
		if shown && (word == "" || strings.Contains(strings.ToLower(r.URL.String()+" "+r.Software+" "+r.LastError), word)) {
			rows = append(rows, r)
		}
	}

	slices.SortFunc(rows, func(a, b relaysync.RelayStatus) int { return cmp.Compare(a.URL.String(), b.URL.String()) })

	d.Rows, d.Paging = web.PageOf(rows, rowsShown, len(s.sync.Relays), q)
	return d, nil
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
	rows, err := p.cfg.Sync.RepoStatus(ctx, refs...)
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

type gitData struct {
	At      time.Time
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
	d := gitData{At: s.at, Q: q.Get("q"), G: shown, Waits: waiting(s.git)}
	var rows []purgatory.DomainStatus
	for _, r := range s.git.Domains {
		if word := strings.ToLower(d.Q); word == "" || strings.Contains(strings.ToLower(r.Domain+" "+r.LastError), word) {
			rows = append(rows, r)
		}
	}
	d.Domains, d.Paging = web.PageOf(rows, rowsShown, len(s.git.Domains), q)
	return d, nil
}

type explainData struct {
	Question, Error string
	X               explain.Explanation
	State, Verdict  string
}

func (p *Page) explain(ctx context.Context, _ *snapshot, q url.Values) (any, error) {

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
