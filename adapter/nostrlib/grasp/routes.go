package graspadapter

import (
	"context"
	"net/http"
	"strings"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru/grasp"
	"fiatjaf.com/nostr/nip19"

	"github.com/graspsync/graspsync/adapter/internal/server"
	"github.com/graspsync/graspsync/adapter/pages"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// routes serves git behind the hooks of the GraspServer, and the pages.
func routes(gs *grasp.GraspServer, git *gitserve.Handler, site *pages.Site, identity nip34.Identity) *http.ServeMux {
	base, mux := server.Named(identity, gs.Relay.Router()), http.NewServeMux()
	mux.HandleFunc("GET /{npub}/{repo}/info/refs", func(w http.ResponseWriter, r *http.Request) {
		hooks := []hook{gs.OnRead} // a push also lists refs
		if r.URL.Query().Get("service") == "git-receive-pack" {
			hooks = append(hooks, gs.OnWrite)
		}
		serve(w, r, base, git, hooks...)
	})
	mux.HandleFunc("POST /{npub}/{repo}/git-upload-pack", func(w http.ResponseWriter, r *http.Request) { serve(w, r, base, git, gs.OnRead) })
	mux.HandleFunc("POST /{npub}/{repo}/git-receive-pack", func(w http.ResponseWriter, r *http.Request) { serve(w, r, base, git, gs.OnWrite) })
	mux.HandleFunc("GET /{npub}/{repo}", func(w http.ResponseWriter, r *http.Request) { serve(w, r, base, git) })
	front := git.Page(http.HandlerFunc(site.Front))
	for _, path := range []string{"/{$}", "/assets/{name}"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if f := (&fallback{ResponseWriter: w}); f.missing(base, r) {
				front.ServeHTTP(w, r)
			}
		})
	}
	mux.Handle("/", base)
	return mux
}

// fallback drops an answer with status 404.
type fallback struct {
	http.ResponseWriter
	dropped bool
}

// missing reports whether h has no answer to a request. Otherwise it is written.
func (f *fallback) missing(h http.Handler, r *http.Request) bool {
	h.ServeHTTP(f, r)
	return f.dropped
}

func (f *fallback) WriteHeader(status int) {
	if f.dropped = status == http.StatusNotFound; !f.dropped {
		f.ResponseWriter.WriteHeader(status)
	}
}

func (f *fallback) Write(p []byte) (int, error) {
	if f.dropped {
		return len(p), nil
	}
	return f.ResponseWriter.Write(p)
}

// Unwrap supports [http.ResponseController].
func (f *fallback) Unwrap() http.ResponseWriter { return f.ResponseWriter }

type hook func(ctx context.Context, owner nostr.PubKey, identifier string) (reject bool, reason string)

func serve(w http.ResponseWriter, r *http.Request, base http.Handler, git *gitserve.Handler, hooks ...hook) {
	identifier, dotted := strings.CutSuffix(r.PathValue("repo"), ".git")
	if !dotted {
		base.ServeHTTP(w, r)
		return
	}
	for _, refuses := range hooks {
		if refuses == nil {
			continue
		}
		_, key, err := nip19.Decode(r.PathValue("npub"))
		owner, is := key.(nostr.PubKey)
		if err != nil || !is {
			http.Error(w, "invalid npub", http.StatusBadRequest)
			return
		}
		if reject, reason := refuses(r.Context(), owner, identifier); reject {
			http.Error(w, reason, http.StatusForbidden)
			return
		}
	}
	git.ServeHTTP(w, r)
}
