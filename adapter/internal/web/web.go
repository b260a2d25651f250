// Package web contains the common parts of the HTML pages.
package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
)

//go:embed assets
var assetFiles embed.FS

//go:embed templates
var shared embed.FS

// Templates returns the shared templates with those of a package. Template "s" is for text of strangers.
func Templates(own fs.FS, more template.FuncMap) *template.Template {
	t := template.Must(template.New("").Funcs(functions).Funcs(more).ParseFS(shared, "templates/*.html"))
	return template.Must(t.ParseFS(own, "templates/*.html"))
}

// SetHeaders sets the headers of a page that loads images of further origins.
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

// Assets are the handlers of files by name.
var Assets = func() map[string]http.Handler {
	out := make(map[string]http.Handler)
	entries, _ := assetFiles.ReadDir("assets") // embedded, so no call fails
	for _, e := range entries {
		data, _ := assetFiles.ReadFile("assets/" + e.Name())
		sum := sha256.Sum256(data)
		out[e.Name()] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache") // a new version has other content
			w.Header().Set("Etag", fmt.Sprintf(`"%x"`, sum[:8]))
			http.ServeContent(w, r, e.Name(), time.Time{}, bytes.NewReader(data))
		})
	}
	return out
}()

// Query returns at most 1,000 bytes of each parameter.
func Query(r *http.Request, names ...string) url.Values {
	out := make(url.Values)
	for _, name := range names {
		if s := strings.TrimSpace(graspsync.Clip(r.URL.Query().Get(name), 1000)); s != "" {
			out.Set(name, s)
		}
	}
	return out
}

// Paging is the position in a list.
type Paging struct {
	Rows, All, From, To int
	Previous, Next      string // URLs; "": none
}

// PageOf returns the rows of a page, with a text q only those whose words contain it.
func PageOf[T any](all []T, most int, q url.Values, words func(T) string) ([]T, Paging) {
	rows := all
	if word := strings.ToLower(q.Get("q")); word != "" {
		rows = slices.DeleteFunc(slices.Clone(all), func(row T) bool { return !strings.Contains(strings.ToLower(words(row)), word) })
	}
	pages := max(1, (len(rows)+most-1)/most)
	n, _ := strconv.Atoi(q.Get("page")) // 0 becomes 1
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
	return rows[from:to], Paging{len(rows), len(all), min(from+1, len(rows)), to, at(n - 1), at(n + 1)}
}
