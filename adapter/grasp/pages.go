package grasp

import (
	"encoding/json"
	"html/template"
	"net/http"
	"strings"

	"github.com/fiatjaf/khatru"

	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

var frontPage = template.Must(template.New("front").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Name}}</title>
<h1>{{.Name}}</h1>
{{with .Description}}<p>{{.}}</p>
{{end}}<p>This is a server for git repositories on <a href="https://nostr.com">Nostr</a>
(<a href="https://github.com/nostr-protocol/nips/blob/master/34.md">NIP-34</a>): a relay, and the repositories that its
events announce. It accepts {{.Criteria}}.</p>
{{with .Curation}}<p>{{.}}</p>
{{end}}<h2>Use it</h2>
<p>With <a href="https://gitworkshop.dev/ngit">ngit</a>, in a repository of yours:</p>
<pre>ngit init</pre>
<p>and name {{.Host}} as one of its servers. Every repository on this server can be cloned with git alone:</p>
<pre>git clone {{.URL}}/&lt;npub of the owner&gt;/&lt;identifier&gt;.git</pre>
<p>Repositories, their issues and their pull requests can be read at <a href="https://gitworkshop.dev">gitworkshop.dev</a>.</p>
{{with .Contact}}<p>Contact: {{.}}</p>
{{end}}</html>
`))

// front serves pages for browsers on paths that the relay does not serve.
type front struct {
	relay              *khatru.Relay
	next               http.Handler
	commands           *control.Control
	whole              bool // the server has a whole host, not only paths
	criteria, curation string
}

const nip05 = "/.well-known/nostr.json"

// ServeHTTP implements [http.Handler].
func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, pattern := f.relay.Router().Handler(r)
	switch {
	case pattern != "":
		f.next.ServeHTTP(w, r)
		return
	case f.whole && r.URL.Path == nip05 && f.relay.Info.PubKey != "" && isReading(r):
		f.names(w)
		return
	case !isPage(r) && (f.whole || r.URL.Path == "/"): // under a path of the identity, only "/" is certain to be ours
		f.next.ServeHTTP(w, r)
		return
	case r.URL.Path != "/":
		_ = gitserve.WriteMissing(w, gitserve.BasePath(r)) // fails only if the client has disconnected
		return
	}
	root, info := strings.TrimSuffix(gitserve.BasePath(r), "/"), *f.relay.Info
	f.commands.About(&info.Name, &info.Description, &info.Icon)
	_ = gitserve.WritePage(w, http.StatusOK, frontPage, struct {
		Name, Description, Contact, Criteria, Curation, Host, URL string
	}{info.Name, info.Description, info.Contact, f.criteria, f.curation, r.Host + root, gitserve.BaseURL(r) + root})
}

// names serves the key of the relay's operator as the NIP-05 name "_".
func (f front) names(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Access-Control-Allow-Origin", "*")
	_ = json.NewEncoder(w).Encode(map[string]any{"names": map[string]string{"_": f.relay.Info.PubKey}}) // fails only if the client has disconnected
}

// isPage reports whether a request can come from a browser. Requests for the NIP-11 document and
// NIP-86 calls have other headers.
func isPage(r *http.Request) bool {
	return isReading(r) && !strings.Contains(strings.ToLower(r.Header.Get("Accept")), "application/nostr+json") && r.Header.Get("Content-Type") != "application/nostr+json+rpc"
}

func isReading(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
}
