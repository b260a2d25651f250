package graspadapter

import (
	"context"
	"net/http"
	"strings"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/khatru/grasp"
	"fiatjaf.com/nostr/nip19"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/server"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/rules"
)

// routes returns a mux with git requests for our handler, behind the hooks of the GraspServer. The
// router of the relay serves everything else, except pages of blocked repositories.
func routes(gs *grasp.GraspServer, git *gitserve.Handler, book *rules.RuleSet, identity nip34.Identity) *http.ServeMux {
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
	mux.HandleFunc("GET /{npub}/{repo}", func(w http.ResponseWriter, r *http.Request) {
		identifier, dotted := strings.CutSuffix(r.PathValue("repo"), ".git")
		owner, err := nip34.ParseNPub(r.PathValue("npub"))
		if dotted && err == nil && book.BlocksRepository(graspsync.RepoRef{Owner: owner, Identifier: identifier}) {
			http.NotFound(w, r) // the GraspServer's answer for an unknown repository
			return
		}
		base.ServeHTTP(w, r)
	})
	mux.Handle("/", base)
	return mux
}

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
