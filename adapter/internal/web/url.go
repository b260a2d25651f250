package web

import (
	"net/http"
	"net/url"
	"strings"
)

// OriginalPath returns the requested path with the prefix that an outer handler removed.
func OriginalPath(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return strings.TrimSuffix(u.EscapedPath(), "/")
	}
	return strings.TrimSuffix(r.URL.EscapedPath(), "/")
}

// BasePath returns the removed prefix, with a trailing slash.
func BasePath(r *http.Request) string {
	return strings.TrimSuffix(OriginalPath(r), strings.TrimSuffix(r.URL.EscapedPath(), "/")) + "/"
}
