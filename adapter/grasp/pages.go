package grasp

import (
	"html/template"
	"net/http"
	"strings"

	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

var frontPage = template.Must(template.New("front").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Name}}</title>
<h1>{{.Name}}</h1>
{{with .Description}}<p>{{.}}</p>
{{end}}<p>This is a server for git repositories on <a href="https://nostr.com">Nostr</a>
(<a href="https://github.com/nostr-protocol/nips/blob/master/34.md">NIP-34</a>): a relay, and the repositories that its
events announce. It takes {{.Criteria}}.</p>
{{with .Curation}}<p>{{.}}</p>
{{end}}<h2>Use it</h2>
<p>With <a href="https://gitworkshop.dev/ngit">ngit</a>, in a repository of yours:</p>
<pre>ngit init</pre>
<p>and name {{.Host}} as one of its servers. Whatever is here can be cloned with git alone:</p>
<pre>git clone {{.URL}}/&lt;npub of the owner&gt;/&lt;identifier&gt;.git</pre>
<p>Repositories, their issues and their pull requests can be read at <a href="https://gitworkshop.dev">gitworkshop.dev</a>.</p>
{{with .Contact}}<p>Whom to ask: {{.}}</p>
{{end}}</html>
`))

// front is what browsers see of a server where the relay has nothing of its own.
type front struct {
	relay              *khatru.Relay
	next               http.Handler
	criteria, curation string
}

// ServeHTTP implements [http.Handler].
func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isPage(r) {
		f.next.ServeHTTP(w, r)
		return
	}
	if _, pattern := f.relay.Router().Handler(r); pattern != "" {
		f.next.ServeHTTP(w, r)
		return
	}
	root := gitserve.Root(r)
	if r.URL.Path != "/" {
		_ = gitserve.WriteMissing(w, root) // the client is gone if this fails
		return
	}
	info := f.relay.Info
	_ = gitserve.WritePage(w, http.StatusOK, frontPage, struct {
		Name, Description, Contact, Criteria, Curation, Host, URL string
	}{info.Name, info.Description, info.Contact, f.criteria, f.curation, r.Host + strings.TrimSuffix(root, "/"), gitserve.Origin(r) + strings.TrimSuffix(root, "/")})
}

// isPage reports whether a request may be one of a browser that shows what it gets: of what
// else comes khatru tells apart what it is by other headers than the method.
func isPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == "" &&
		!strings.Contains(r.Header.Get("Accept"), "application/nostr+json") && r.Header.Get("Content-Type") != "application/nostr+json+rpc"
}
