package statuspage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"sync"
	"time"
)

// Page is the status page of a server. Use [New]. It is safe for concurrent use.
type Page struct {
	// set by New, read-only
	cfg    Config
	mux    *http.ServeMux
	asking chan struct{} // a token for each question in progress

	mu sync.Mutex
	// guarded by mu
	last *snapshot
}

// New returns a page, or an error if Config.Sync is nil.
func New(cfg Config) (*Page, error) {
	if cfg.Sync == nil {
		return nil, errors.New("status page: Config.Sync is nil")
	}
	p := &Page{cfg: cfg, mux: http.NewServeMux(), asking: make(chan struct{}, maxQuestions)}
	for name, v := range views {
		if name == home {
			name = "{$}"
		}
		p.mux.HandleFunc("GET /"+name, p.show(v))
	}
	for name, a := range assets {
		p.mux.Handle("GET /assets/"+name, a)
	}
	p.mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		p.write(w, &views404, nil, fragment{http.StatusNotFound, "<h1>Not found</h1>\n<p>Page not found.</p>"})
	})
	return p, nil
}

// ServeHTTP implements [http.Handler].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	// Other sites in the operator's browser must not ask questions.
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		http.Error(w, "not for other sites", http.StatusForbidden)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// headers are sent with every response. A page loads only its own files and runs no scripts.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control":                "no-store",
}

func (p *Page) show(v *view) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := v.query(r.URL.Query())
		p.write(w, v, q, p.render(r.Context(), v, q))
	}
}

func (p *Page) write(w http.ResponseWriter, v *view, q url.Values, f fragment) {
	var out bytes.Buffer
	question := ""
	if v.name == "explain" {
		question = q.Get("q")
	}
	err := pages.ExecuteTemplate(&out, "layout", struct {
		Server, Title, View, Question string
		CanAsk, HasGit, HasRules      bool
		Links                         []Link
		At                            time.Time
		Main                          template.HTML
	}{
		p.cfg.Name, v.title, v.name, question, p.cfg.Explain != nil, p.cfg.Purgatory != nil, p.cfg.Rules != nil, p.cfg.Links, time.Now(),
		template.HTML(f.html), // made by our templates
	})
	if err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(f.status)
	_, _ = w.Write(out.Bytes()) // fails only if the client is gone
}

// fragment is a view without the layout.
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

//go:embed assets
var assetFiles embed.FS

var pages = template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.html"))

type asset struct {
	name, etag string
	data       []byte
}

var assets = func() map[string]asset {
	out := make(map[string]asset)
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // embedded, so it exists
	}
	for _, e := range entries {
		data, err := assetFiles.ReadFile(path.Join("assets", e.Name()))
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(data)
		out[e.Name()] = asset{e.Name(), `"` + hex.EncodeToString(sum[:8]) + `"`, data}
	}
	return out
}()

// ServeHTTP implements [http.Handler].
func (a asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache") // a new version has other content
	w.Header().Set("Etag", a.etag)
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.data))
}
