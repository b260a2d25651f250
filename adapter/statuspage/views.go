package statuspage

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/internal/web"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

const (
	rowsShown    = 50
	maxQuestions = 4 // under way
	viewTime     = 10 * time.Second
)

var (
	errNoGit = errors.New("this server has no git data")
	errBusy  = errors.New("too many questions, try again in a moment")
)

type overviewData struct {
	Name            string
	Ready           string // reason for not being ready, or ""
	Status          relaysync.Status
	Git             *purgatory.Status
	Waits           int // events that wait for git data
	Expired         uint64
	Wanted, Missing int // items of connected relays
	Connected, Dead int // relays
	Lasting         uint64
	Strikes         uint64
	State, Headline string
	Done            float64 // part that is complete, from 0 to 1
	Empty           bool    // no repository lists the server
}

func (p *Page) overview(ctx context.Context, s snapshot, _ url.Values) (any, error) {
	d := overviewData{Name: p.cfg.Name, Status: s.sync, Git: s.git}
	if p.cfg.Ready != nil {
		if err := p.cfg.Ready(ctx); err != nil {
			d.Ready = err.Error()
		}
	}
	for _, r := range s.sync.Relays {
		if r.Connected() {
			d.Connected++
			d.Wanted += r.Wanted
			d.Missing += r.Missing()
		}
		if r.Health == "dead" {
			d.Dead++
		}
		d.Lasting += r.Lasting
		d.Strikes += r.Strikes
	}
	if s.git != nil {
		d.Waits, d.Expired = waiting(s.git), s.git.Ended[purgatory.Expired]
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
	return d, nil
}

func waiting(g *purgatory.Status) int {
	return g.Announcements + g.States + g.PullRequests + g.MaintainerAnnouncements
}

type relaysData struct {
	Q, State string
	States   []string
	Rows     []relaysync.RelayStatus
	Paging   web.Paging
}

var shownStates = []string{"all", "connected", "not connected", "dead", "gaps"}

func (p *Page) relays(_ context.Context, s snapshot, q url.Values) (any, error) {
	d := relaysData{Q: q.Get("q"), State: cmp.Or(q.Get("state"), "all"), States: shownStates}
	rows := slices.DeleteFunc(slices.Clone(s.sync.Relays), func(r relaysync.RelayStatus) bool {
		switch d.State {
		case "connected":
			return !r.Connected()
		case "not connected":
			return r.Connected()
		case "dead":
			return r.Health != "dead"
		case "gaps":
			return r.Gaps+r.Lasting+r.Unserved+r.Seconds+r.Strikes == 0 && r.GapBatches == 0
		}
		return false
	})
	slices.SortFunc(rows, func(a, b relaysync.RelayStatus) int { return cmp.Compare(a.URL.String(), b.URL.String()) })
	d.Rows, d.Paging = web.PageOf(rows, rowsShown, q, func(r relaysync.RelayStatus) string {
		return r.URL.String() + " " + r.Software + " " + r.LastError
	})
	d.Paging.All = len(s.sync.Relays)
	return d, nil
}

type repositoriesData struct {
	Q      string
	Rows   []repositoryRow
	Paging web.Paging
}

type repositoryRow struct {
	relaysync.RepoStatus
	Connected, Live int
}

func (p *Page) repositories(ctx context.Context, s snapshot, q url.Values) (any, error) {
	all, err := p.cfg.Sync.RepoRefs(ctx)
	if err != nil {
		return nil, err
	}
	d := repositoriesData{Q: q.Get("q")}
	refs, paging := web.PageOf(all, rowsShown, q, func(ref graspsync.RepoRef) string {
		return ref.String() + " " + nip34.NPub(ref.Owner) + "/" + ref.Identifier
	})
	d.Paging = paging
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
		}
		d.Rows = append(d.Rows, row)
	}
	return d, nil
}

type gitData struct {
	Q       string
	G       purgatory.Status
	Waits   int
	Domains []purgatory.DomainStatus
	Paging  web.Paging
}

func (p *Page) git(_ context.Context, s snapshot, q url.Values) (any, error) {
	if s.git == nil {
		return nil, errNoGit
	}
	shown := *s.git
	shown.Waiting = shown.Waiting[:min(len(shown.Waiting), rowsShown)]
	d := gitData{Q: q.Get("q"), G: shown, Waits: waiting(s.git)}
	d.Domains, d.Paging = web.PageOf(s.git.Domains, rowsShown, q, func(r purgatory.DomainStatus) string { return r.Domain + " " + r.LastError })
	return d, nil
}

type explainData struct {
	Question, Error string
	X               explain.Explanation
	State, Verdict  string
}

func (p *Page) explain(ctx context.Context, _ snapshot, q url.Values) (any, error) {
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
