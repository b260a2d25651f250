// Package web contains the common parts of the HTML pages.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"
)

//go:embed assets
var assetFiles embed.FS

//go:embed templates
var shared embed.FS

// Templates returns the shared templates with those of a package. Text of strangers passes through
// the function text, in a bdi element (template "s"), and is escaped.
func Templates(own fs.FS, more template.FuncMap) *template.Template {
	t := template.Must(template.New("").Funcs(functions).Funcs(more).ParseFS(shared, "templates/*.html"))
	return template.Must(t.ParseFS(own, "templates/*.html"))
}

// SetHeaders sets the headers of a page, which loads files of its own origin, images of further
// origins, and no scripts.
func SetHeaders(w http.ResponseWriter, images string) {
	for name, value := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'" + images + "; " +
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":     "nosniff",
		"Referrer-Policy":            "no-referrer",
		"Cross-Origin-Opener-Policy": "same-origin",
		"Cache-Control":              "no-cache",
	} {
		w.Header().Set(name, value)
	}
}

// Write writes a page.
func Write(w http.ResponseWriter, status int, t *template.Template, name string, data any) {
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, name, data); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // fails only if the client is gone
}

// Assets are the handlers of the files that pages load, by name.
var Assets = func() map[string]http.Handler {
	out := make(map[string]http.Handler)
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

type asset struct {
	name, etag string
	data       []byte
}

func (a asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-cache") // a new version has other content
	w.Header().Set("Etag", a.etag)
	http.ServeContent(w, r, a.name, time.Time{}, bytes.NewReader(a.data))
}

// Paging is the position in a list.
type Paging struct {
	Page, Pages, Rows, All int
	From, To               int
	Previous, Next         string // URLs; "": none
}

// PageOf returns the rows of the page that the query asks for. all is the number without a search.
func PageOf[T any](rows []T, most, all int, q url.Values) ([]T, Paging) {
	n, err := strconv.Atoi(q.Get("page"))
	pages := max(1, (len(rows)+most-1)/most)
	if err != nil {
		n = 1
	}
	n = max(1, min(n, pages))
	at := func(n int) string {
		if n < 1 || n > pages {
			return ""
		}
		to := maps.Clone(q)
		to.Set("page", strconv.Itoa(n))
		return "?" + to.Encode()
	}
	from, to := (n-1)*most, min(len(rows), n*most)
	return rows[from:to], Paging{
		Page: n, Pages: pages, Rows: len(rows), All: all, From: min(from+1, len(rows)), To: to, Previous: at(n - 1), Next: at(n + 1),
	}
}
