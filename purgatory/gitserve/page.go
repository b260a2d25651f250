package gitserve

import (
	"context"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Description is the text on the page of a repository. Clients wrote it. It is not escaped.
type Description struct {
	Name, Text  string
	Web         []string // only http and https URLs are shown
	Maintainers []graspsync.PubKey
}

// WritePage writes an HTML page. The template escapes text of clients, and the
// Content-Security-Policy forbids scripts and resources.
func WritePage(w http.ResponseWriter, status int, page *template.Template, data any) error {
	for name, value := range map[string]string{
		"Content-Type":            "text/html; charset=utf-8",
		"Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		"X-Content-Type-Options":  "nosniff",
		"Referrer-Policy":         "no-referrer",
		"Cache-Control":           "no-cache",
	} {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	return page.Execute(w, data)
}

// Limits of a page.
const (
	mostShown = 100
	mostText  = 4000 // bytes
)

type pageOf struct {
	Title, Text         string
	Owner, Identifier   string
	Path                string // escaped identifier for links
	Clone, Nostr, Naddr string
	HEAD                string
	Branches, Tags      shownRefs
	Maintainers, Web    []string
}

type shownRefs struct {
	Refs []shownRef
	More int
}

type shownRef struct{ Name, ID string }

var repositoryPage = template.Must(template.New("repository").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
{{with .Text}}<p>{{.}}</p>
{{end}}<p>A git repository that is announced on Nostr by {{.Owner}}, who calls it <code>{{.Identifier}}</code>.</p>
<h2>Clone it</h2>
<pre>git clone {{.Clone}}</pre>
<p>With <a href="https://gitworkshop.dev/ngit">ngit</a>, also to push and to propose changes:</p>
<pre>git clone {{.Nostr}}</pre>
<p>See it, its issues and its pull requests at
<a href="https://gitworkshop.dev/{{.Owner}}/{{.Path}}">gitworkshop.dev</a>{{with .Naddr}} or
<a href="https://njump.me/{{.}}">njump.me</a>{{end}}.</p>
{{if .Web}}<ul>{{range .Web}}
<li><a href="{{.}}" rel="nofollow noopener">{{.}}</a>{{end}}
</ul>
{{end}}{{define "refs"}}<table>{{range .Refs}}
<tr><td>{{.Name}}<td><code>{{.ID}}</code>{{end}}
</table>
{{with .More}}<p>And {{.}} more.</p>
{{end}}{{end}}<h2>Branches</h2>
{{if .Branches.Refs}}{{with .HEAD}}<p>The default one is {{.}}.</p>
{{end}}{{template "refs" .Branches}}{{else}}<p>None yet.</p>
{{end}}{{if .Tags.Refs}}<h2>Tags</h2>
{{template "refs" .Tags}}{{end}}{{if .Maintainers}}<h2>Maintainers</h2>
<ul>{{range .Maintainers}}
<li><a href="https://njump.me/{{.}}">{{.}}</a>{{end}}
</ul>
{{end}}</html>
`))

var missingPage = template.Must(template.New("missing").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Not here</title>
<h1>Not here</h1>
<p>There is nothing at this address. A repository is at {{.}}&lt;npub of its owner&gt;/&lt;identifier&gt;.git, once an announcement
that lists this server has been published to it. One whose git data never came has gone again.</p>
<p><a href="{{.}}">What this server is</a></p>
</html>
`))

// WriteMissing writes a page with status 404 that links to root.
func WriteMissing(w http.ResponseWriter, root string) error {
	return WritePage(w, http.StatusNotFound, missingPage, root)
}

// BaseURL returns the scheme and host of a request URL. Clients can forge them, which affects only
// their own answer.
func BaseURL(r *http.Request) string {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (p *pageOf) describe(d Description) {
	if d.Name != "" {
		p.Title = shown(d.Name)
	}
	p.Text = shown(d.Text)
	for _, text := range d.Web[:min(len(d.Web), mostShown)] {
		if u, err := url.Parse(text); err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" {
			p.Web = append(p.Web, shown(text))
		}
	}
	for _, m := range d.Maintainers[:min(len(d.Maintainers), mostShown)] {
		p.Maintainers = append(p.Maintainers, nip34.NPub(m))
	}
}

// shown returns text of clients on one line, printable and clipped.
func shown(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	out := graspsync.PrintableAtMost(s, mostText)
	if len(out) < len(s) {
		out += "..."
	}
	return out
}

// pasted escapes all characters of a path that a shell might interpret, because users copy commands
// from the page.
func pasted(path string) string {
	var out strings.Builder
	for i := range len(path) {
		c := path[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~/%", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

// originalPath returns the path that the client requested, before an outer handler removed a
// prefix.
func originalPath(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return strings.TrimSuffix(u.EscapedPath(), "/")
	}
	return strings.TrimSuffix(r.URL.EscapedPath(), "/")
}

// BasePath returns the path prefix that an outer handler removed, with a trailing slash.
func BasePath(r *http.Request) string {
	return strings.TrimSuffix(originalPath(r), strings.TrimSuffix(r.URL.EscapedPath(), "/")) + "/"
}

func shownOf(refs map[string]nip34.ObjectID, kind string) (out shownRefs) {
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		short, ok := strings.CutPrefix(name, kind)
		switch {
		case !ok:
		case len(out.Refs) == mostShown:
			out.More++
		default:
			out.Refs = append(out.Refs, shownRef{shown(short), refs[name].String()})
		}
	}
	return out
}

// page serves the page of a repository. It takes a slot for lists of refs, because it reads as
// much.
func (h *Handler) page(ctx context.Context, w http.ResponseWriter, t *transfer, r *http.Request, ref graspsync.RepoRef) {
	process, err := h.asks.processes.acquire(ctx, t.who, h.cfg.fixed.Wait)
	if err != nil {
		busy(w)
		return
	}
	defer process.Release() // released by defer too, because Describe may panic
	p, err := h.describe(ctx, r, ref)
	process.Release()
	if err != nil {
		h.fail(w, ref, missing(err))
		return
	}
	_ = WritePage(w, http.StatusOK, repositoryPage, p) // fails only if the client disconnected
}

func (h *Handler) describe(ctx context.Context, r *http.Request, ref graspsync.RepoRef) (pageOf, error) {
	refs, head, err := h.repos.shown(h.repos.at(ref))
	if err != nil {
		return pageOf{}, err
	}
	owner := nip34.NPub(ref.Owner)
	p := pageOf{
		Title: shown(ref.Identifier), Owner: owner, Identifier: shown(ref.Identifier), Path: ref.Identifier,
		Clone: BaseURL(r) + pasted(originalPath(r)), Nostr: "nostr://" + owner + "/" + pasted(url.PathEscape(ref.Identifier)),
		HEAD: shown(strings.TrimPrefix(head, "refs/heads/")), Branches: shownOf(refs, "refs/heads/"), Tags: shownOf(refs, "refs/tags/"),
	}
	p.Naddr, _ = nip19.EncodeEntity(ref.Owner.String(), graspsync.KindAnnouncement, ref.Identifier, nil) // only a link
	about, err := h.cfg.Describe(ctx, ref)
	if err != nil {
		h.log.failed(ref, err) // the page is served without description
	}
	p.describe(about)
	return p, nil
}
