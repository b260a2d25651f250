package statuspage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config says what a page shows. Sync must be set.
type Config struct {
	// Name is that of the server, for headings. Defaults to nothing.
	Name string
	// Sync is what follows relays.
	Sync Sync
	// Purgatory is what holds events until their git data is here. Without it nothing is said of git.
	Purgatory Purgatory
	// Ready returns why the server can't do its work. It is asked at most once in 5 s, and only while
	// somebody looks. Without it the page does not say.
	Ready func(ctx context.Context) error
	// Explain answers a question about an event, a repository or a relay, in lines of text. What is
	// asked is a stranger's, of at most 1,000 bytes. Four questions are answered at once, each within
	// 10 s. Without it the page has no box for questions.
	Explain func(ctx context.Context, question string) (string, error)
	// Rules returns what the operator has decided, in the order in which it is shown: [rules.Book.All]
	// through [RulesOf], for one. It must not block, and is asked while somebody looks. Without it the
	// page says nothing of rules.
	Rules func() []Rule
	// Links are what else there is for operators, such as the metrics. Each is relative to the page.
	Links []Link
	// MaxViewers is how many pages may be followed live at once, at least 1. Others are still shown, and
	// stand still. Defaults to 32.
	MaxViewers int
}

// Rule is something that the operator has decided.
type Rule struct {
	Action  string // block or allow
	About   string // relay, author, repository or event
	Subject string // as protocols spell it: a host, a key or an id in hex, the address of a repository
	By      string // who has decided that; "": it is not known
	Since   time.Time
	Reason  string
}

// RulesOf returns what a page shows of a [rules.Book], such as [Config].Rules.
func RulesOf(book *rules.Book) func() []Rule {
	return func() (out []Rule) {
		for _, r := range book.All() {
			out = append(out, Rule{string(r.Action), string(r.Subject.Kind), r.Subject.Name, r.By, r.Since, r.Reason})
		}
		return out
	}
}

// Link is an entry of the page's foot.
type Link struct{ Text, Href string }

// Sync is what the page wants of a [relaysync.SyncManager]. Its methods may be called concurrently;
// none is called while nobody looks, but for Status by [Page.Run].
type Sync interface {
	Status() relaysync.Status
	Refs(ctx context.Context) ([]graspsync.RepoRef, error)
	Outlines(ctx context.Context, refs ...graspsync.RepoRef) ([]relaysync.RepoStatus, error)
	RepoStatus(ctx context.Context, ref graspsync.RepoRef) (relaysync.RepoStatus, error)
}

// Purgatory is what the page wants of a [purgatory.Purgatory].
type Purgatory interface{ Status() purgatory.Status }

var (
	_ Sync      = (*relaysync.SyncManager)(nil)
	_ Purgatory = (*purgatory.Purgatory)(nil)
)

// ErrConfig is wrapped by what [New] says of its Config.
var ErrConfig = errors.New("invalid configuration")

const defaultMaxViewers = 32

func (c Config) validate() error {
	var errs []error
	if c.Sync == nil {
		errs = append(errs, errors.New("Sync is nil"))
	}
	if c.MaxViewers < 0 {
		errs = append(errs, fmt.Errorf("MaxViewers is %d, want 1 or more", c.MaxViewers))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MaxViewers == 0 {
		c.MaxViewers = defaultMaxViewers
	}
	return c
}
