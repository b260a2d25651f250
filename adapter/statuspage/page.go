package statuspage

import (
	"context"
	"embed"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/graspsync/graspsync/adapter/internal/web"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Page is the status page of a server.
type Page struct {
	// set by New, read-only
	cfg    Config
	mux    *http.ServeMux
	asking chan struct{} // a token for each question in progress
	start  time.Time

	mu sync.Mutex
	// guarded by mu
	last snapshot
}

// New returns a page, or an error if Config.Sync or Explain is nil.
func New(cfg Config) (*Page, error) {
	if cfg.Sync == nil || cfg.Explain == nil {
		return nil, errors.New("status page: Config.Sync or Explain is nil")
	}
	p := &Page{cfg: cfg, mux: http.NewServeMux(), asking: make(chan struct{}, maxQuestions), start: time.Now()}
	for name, v := range views {
		path := name
		if name == "overview" {
			path = "{$}"
		}
		p.mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, r *http.Request) { p.show(w, r, name, v) })
	}
	for name, a := range web.Assets {
		p.mux.Handle("GET /assets/"+name, a)
	}
	p.mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		p.write(w, http.StatusNotFound, "failed", layout{Title: "Not found", Main: "Page not found."})
	})
	return p, nil
}

// ServeHTTP implements [http.Handler].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	web.SetHeaders(w, "")
	w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
	w.Header().Set("Cache-Control", "no-store")
	// Other sites in the operator's browser must not ask questions.
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		http.Error(w, "not for other sites", http.StatusForbidden)
		return
	}
	p.mux.ServeHTTP(w, r)
}

func (p *Page) show(w http.ResponseWriter, r *http.Request, name string, v view) {
	ctx, cancel := context.WithTimeout(r.Context(), viewTime)
	defer cancel()
	q := web.Query(r, "q", "state", "page")
	l := layout{Title: v.title, View: name}
	if name == "explain" {
		l.Question = q.Get("q")
	}
	status := http.StatusOK
	var err error
	if l.Main, err = v.data(p, ctx, p.snapshot(), q); err != nil {
		name, status, l.Main = "failed", http.StatusServiceUnavailable, err.Error()
	}
	if errors.Is(err, errNoGit) {
		status = http.StatusNotFound
	}
	p.write(w, status, name, l)
}

type layout struct {
	Config

	Title, View, Question string
	At                    time.Time
	Up                    time.Duration
	Main                  any // data of the view, or an error
}

func (p *Page) write(w http.ResponseWriter, status int, name string, l layout) {
	l.Config, l.At, l.Up = p.cfg, time.Now(), time.Since(p.start)
	web.Write(w, status, pages, name, l)
}

const snapshotPeriod = time.Second

type snapshot struct {
	at   time.Time
	sync relaysync.Status
	git  *purgatory.Status // nil: none
}

func (p *Page) snapshot() snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.Sub(p.last.at) >= snapshotPeriod {
		p.last = snapshot{at: now, sync: p.cfg.Sync.Status()}
		if p.cfg.Purgatory != nil {
			git := p.cfg.Purgatory.Status()
			p.last.git = &git
		}
	}
	return p.last
}

type view struct {
	title string
	data  func(p *Page, ctx context.Context, s snapshot, q url.Values) (any, error)
}

var views = map[string]view{
	"overview":     {"Overview", (*Page).overview},
	"relays":       {"Relays", (*Page).relays},
	"repositories": {"Repositories", (*Page).repositories},
	"git":          {"Git data", (*Page).git},
	"explain":      {"Explain", (*Page).explain},
}

//go:embed templates
var templateFiles embed.FS

var pages = web.Templates(templateFiles, functions)
