package graspadapter

import (
	"context"
	"net/http"
	"strings"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru/grasp"
	"fiatjaf.com/nostr/nip19"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// routes has git's requests answered by our handler, after the hooks of the GraspServer, and
// all else by what the relay's router has: the page of a repository, and what the embedder added.
func routes(gs *grasp.GraspServer, git *gitserve.Handler) *http.ServeMux {
	base, mux := gs.Relay.Router(), http.NewServeMux()
	mux.HandleFunc("GET /{npub}/{repo}/info/refs", func(w http.ResponseWriter, r *http.Request) {
		hooks := []hook{gs.OnRead} // whoever is going to push is told all refs as well
		if r.URL.Query().Get("service") == "git-receive-pack" {
			hooks = append(hooks, gs.OnWrite)
		}
		serve(w, r, base, git, hooks...)
	})
	mux.HandleFunc("POST /{npub}/{repo}/git-upload-pack", func(w http.ResponseWriter, r *http.Request) { serve(w, r, base, git, gs.OnRead) })
	mux.HandleFunc("POST /{npub}/{repo}/git-receive-pack", func(w http.ResponseWriter, r *http.Request) { serve(w, r, base, git, gs.OnWrite) })
	mux.Handle("/", base)
	return mux
}

// hook is one of a GraspServer.
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
