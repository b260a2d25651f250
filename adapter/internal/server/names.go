package server

import (
	"net/http"

	"github.com/graspsync/graspsync/nip34"
)

// Named makes Host a name of the service, the one that the client used or the first.
func Named(identity nip34.Identity, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := identity.Origin(r.Host)
		if u.Scheme == "" {
			next.ServeHTTP(w, r)
			return
		}
		out := r.Clone(r.Context())
		out.Host = u.String()[len(u.Scheme+"://"):]
		out.Header.Del("X-Forwarded-Host")
		out.Header.Set("X-Forwarded-Proto", u.Scheme)
		next.ServeHTTP(w, out)
	})
}
