package statuspage

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/adapter/internal/web"
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
	last *snapshot
	pace explain.Pace
}

// New returns a page, or an error if Config.Sync is nil.
func New(cfg Config) (*Page, error) {
	if cfg.Sync == nil {
		return nil, errors.New("status page: Config.Sync is nil")
	}
	if cfg.Explain == nil {
		cfg.Explain = explain.Explainer{Sync: cfg.Sync}.Explain
	}
	p := &Page{cfg: cfg, mux: http.NewServeMux(), asking: make(chan struct{}, maxQuestions), start: time.Now()}
	for name, v := range views {
		if name == home {
			name = "{$}"
		}
		p.mux.HandleFunc("GET /"+name, p.show(v))
	}
	for name, a := range web.Assets {
		p.mux.Handle("GET /assets/"+name, a)
	}
	p.mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		p.write(w, &views404, nil, fragment{http.StatusNotFound, "<h1>Not found</h1>\n<p>Page not found.</p>"})
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

func (p *Page) show(v *view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := v.query(r.URL.Query())
		p.write(w, v, q, p.render(r.Context(), v, q))
	}
}

func (p *Page) write(w http.ResponseWriter, v *view, q url.Values, f fragment) {
	question := ""
	if v.name == "explain" {
		question = q.Get("q")
	}
	now := time.Now()
	web.Write(w, f.status, pages, "layout", struct {
		Config

		Title, View, Question string
		At                    time.Time
		Up                    time.Duration
		Main                  template.HTML
	}{p.cfg, v.title, v.name, question, now, now.Sub(p.start), template.HTML(f.html)}) // made by our templates
}

type fragment struct {
	status int
	html   string
}

func (p *Page) render(ctx context.Context, v *view, q url.Values) fragment {
	ctx, cancel := context.WithTimeout(ctx, viewTime)
	defer cancel()
	data, err := v.data(p, ctx, p.snapshot(time.Now()), q)
	f := fragment{status: http.StatusOK}
	name := v.name
	if err != nil {
		f.status, name, data = statusOf(err), "failed", err.Error()
	}
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, name, data); err != nil {
		return fragment{http.StatusInternalServerError, "<p>The page could not be made.</p>"}
	}
	f.html = out.String()
	return f
}

//go:embed templates
var templateFiles embed.FS

var pages = web.Templates(templateFiles, functions)
