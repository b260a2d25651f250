package pages

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"
	"github.com/nbd-wtf/go-nostr/nip19"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/web"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Config is the content of the pages. Store, Announced and About are required.
type Config struct {
	Identity nip34.Identity
	Store    Store
	// Announced returns the announcement of a repository and its members, or nil.
	Announced func(ctx context.Context, ref graspsync.RepoRef) (*nip34.Announcement, map[graspsync.PubKey]struct{}, error)
	Blocks    func(ref graspsync.RepoRef) bool
	About     func() About
	Logger    *slog.Logger
}

// Store has the served events.
type Store interface {
	Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error]
}

// About is as in the NIP-11 document. Empty fields are not shown.
type About struct {
	Name, Description, Contact string
	Icon                       string // URL
	Criteria                   string // the accepted repositories
	Curation                   string
	Version                    string
	GRASPs                     []string // such as GRASP-01
	NIPs                       []string // numbers
}

// Site is the pages of a server.
type Site struct {
	cfg  Config
	list *list
}

var _ gitserve.Pages = (*Site)(nil)

// New returns a site.
func New(cfg Config) *Site {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Blocks == nil {
		cfg.Blocks = func(graspsync.RepoRef) bool { return false }
	}
	return &Site{cfg, &list{cfg: cfg}}
}

//go:embed templates
var files embed.FS

var templates = web.Templates(files, nil)

const (
	rowsShown = 30
	maxShown  = 100  // branches, tags, maintainers and web pages each
	maxText   = 1000 // bytes of a description
	pageTime  = 10 * time.Second
)

type layout struct {
	Title, Root, Query string
	About              About
	Relay, URL         string // of the server, for commands
	Icon               string // URL of an image, or ""
	At                 time.Time
	Main               any
}

func (s *Site) write(w http.ResponseWriter, r *http.Request, status int, name, root string, title string, main any) {
	a, base := s.cfg.About(), s.origin(r)+strings.TrimSuffix(root, "/")
	a.Name = cmp.Or(a.Name, r.Host)
	d := layout{Title: cmp.Or(title, a.Name), Root: root, About: a, Relay: "ws" + strings.TrimPrefix(base, "http"), URL: base, At: time.Now(), Main: main}
	images := ""
	if u, err := url.Parse(a.Icon); err == nil && (u.Scheme == "https" || u.Scheme == "http") && isHost(u.Host) {
		d.Icon, images = u.String(), " "+u.Scheme+"://"+u.Host // of the operator
	}
	web.SetHeaders(w, images)
	web.Write(w, status, templates, name, d)
}

// origin returns the URL that the client used, without a path. Its scheme is that of the identity, because
// a client can send any X-Forwarded-Proto.
func (s *Site) origin(r *http.Request) string {
	if u := s.cfg.Identity.Origin(r.Host); u.Scheme != "" {
		return u.String()
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func isHost(host string) bool {
	return host != "" && strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-:[]") == ""
}

// Front serves the front page at /, and the files of the pages at /assets/.
func (s *Site) Front(w http.ResponseWriter, r *http.Request) {
	root := web.BasePath(r)
	if name, ok := strings.CutPrefix(r.URL.Path, "/assets/"); ok && web.Assets[name] != nil {
		web.SetHeaders(w, "")
		web.Assets[name].ServeHTTP(w, r)
		return
	}
	if r.URL.Path != "/" {
		s.missing(w, r, root)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	rows, err := s.list.rows(ctx)
	if err != nil {
		s.cfg.Logger.Error("reading the hosted repositories failed", "error", err)
	}
	q := web.Query(r, "q", "page")
	d := frontData{Failed: err != nil, Query: q.Get("q")}
	d.Rows, d.Paging = web.PageOf(rows, rowsShown, q, func(x row) string { return x.words })
	s.write(w, r, http.StatusOK, "front", root, "", d)
}

type frontData struct {
	Query  string
	Failed bool
	Rows   []row
	Paging web.Paging
}

// Missing implements [gitserve.Pages].
func (s *Site) Missing(w http.ResponseWriter, r *http.Request) { s.missing(w, r, web.BasePath(r)) }

// MissingBelow is Missing outside the path of the server, whose front page is at root.
func (s *Site) MissingBelow(root string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.missing(w, r, root) }
}

func (s *Site) missing(w http.ResponseWriter, r *http.Request, root string) {
	s.write(w, r, http.StatusNotFound, "missing", root, "Page not found", nil)
}

type repositoryData struct {
	gitserve.View

	Name, Text     string
	Owner          graspsync.PubKey
	Path           string // escaped identifier
	Clone, Nostr   string
	Naddr          string
	Default        string
	Branches, Tags refs
	Maintainers    []graspsync.PubKey
	Web            []string
	Readme         string
}

type refs struct {
	Refs []shownRef
	All  int
}

type shownRef struct {
	Name, ID string
	Default  bool
}

// Repository implements [gitserve.Pages].
func (s *Site) Repository(w http.ResponseWriter, r *http.Request, v gitserve.View) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTime)
	defer cancel()
	owner, at := nip34.NPub(v.Ref.Owner), url.PathEscape(v.Ref.Identifier)
	d := repositoryData{
		View: v, Name: shown(v.Ref.Identifier), Owner: v.Ref.Owner, Path: at,
		Clone: s.origin(r) + pasted(web.OriginalPath(r)), Nostr: "nostr://" + owner + "/" + pasted(at),
		Default:  strings.TrimPrefix(v.HEAD, "refs/heads/"),
		Branches: refsOf(v, "refs/heads/", strings.Compare), Readme: printable(string(v.Readme)),
		Tags: refsOf(v, "refs/tags/", func(a, b string) int { return strings.Compare(b, a) }), // the newest version first
	}
	d.Naddr, _ = nip19.EncodeEntity(v.Ref.Owner.String(), graspsync.KindAnnouncement, v.Ref.Identifier, nil) // only a link
	if err := s.describe(ctx, &d); err != nil {
		s.cfg.Logger.Error("describing a repository failed", "repo", graspsync.Printable(v.Ref.String()), "error", err)
	}
	s.write(w, r, http.StatusOK, "repository", web.BasePath(r), d.Name, d)
}

func (s *Site) describe(ctx context.Context, d *repositoryData) error {
	about, members, err := s.cfg.Announced(ctx, d.Ref)
	if err != nil || about == nil {
		return err
	}
	d.Name, d.Text = cmp.Or(shown(about.Name), d.Name), shown(described(about))
	for _, tag := range about.Event.Tags {
		if len(tag) < 2 || tag[0] != "web" {
			continue
		}
		for _, text := range tag[1:] {
			if u, err := url.Parse(text); err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil && len(d.Web) < maxShown {
				d.Web = append(d.Web, shown(text))
			}
		}
	}
	d.Maintainers = slices.SortedFunc(maps.Keys(members), func(a, b graspsync.PubKey) int { return strings.Compare(a.String(), b.String()) })
	d.Maintainers = d.Maintainers[:min(len(d.Maintainers), maxShown)]
	return nil
}

// printable keeps printable characters, line feeds and tabs.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || graspsync.IsPrintable(r) && r != utf8.RuneError {
			return r
		}
		return -1
	}, s)
}

func described(a *nip34.Announcement) string {
	if tag := a.Event.Tags.Find("description"); tag != nil {
		return tag[1]
	}
	return ""
}

func shown(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	out := graspsync.PrintableAtMost(s, maxText)
	if len(out) < len(s) {
		out += "..."
	}
	return out
}

// odd matches the characters that a shell might interpret.
var odd = regexp.MustCompile(`[^A-Za-z0-9\-._~/%]`)

// pasted returns an escaped path for a command, which users copy.
func pasted(path string) string {
	return odd.ReplaceAllStringFunc(path, func(c string) string { return fmt.Sprintf("%%%02X", c) })
}

func refsOf(v gitserve.View, prefix string, order func(a, b string) int) (out refs) {
	first := func(name string) int {
		if name == v.HEAD {
			return 0
		}
		return 1
	}
	names := slices.SortedFunc(maps.Keys(v.Refs), func(a, b string) int { return cmp.Or(first(a)-first(b), order(a, b)) })
	for _, name := range names {
		below, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if out.All++; out.All <= maxShown {
			out.Refs = append(out.Refs, shownRef{shown(below), v.Refs[name].String(), name == v.HEAD})
		}
	}
	return out
}
