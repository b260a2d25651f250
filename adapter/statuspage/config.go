package statuspage

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config is the content of a page.
type Config struct {
	// Name is the domain that announcements list.
	Name string
	Sync Sync
	// Purgatory holds events. Without it the page has no git section.
	Purgatory Purgatory
	// Ready returns why the server cannot work. It is called for each view of the overview.
	Ready func(ctx context.Context) error
	// Explain answers a question of at most 1,000 bytes, perhaps of a stranger. At most 4 are
	// answered concurrently, within 10 s each.
	Explain func(ctx context.Context, question string) (explain.Explanation, error)
	// Rules returns the operator's rules in the order of display, such as [RulesOf]. It must not
	// block.
	Rules           func() []Rule
	Links           []Link
	Version, Folder string
}

// Rule is a decision of the operator.
type Rule struct {
	Action  string // block or allow
	About   string // relay, author, repository or event
	Subject string // a host, a key or id in hex, or the address of a repository
	By      string // operator; "": unknown
	Since   time.Time
	Reason  string
}

// RulesOf returns the rules of a [rules.RuleSet] for [Config].Rules.
func RulesOf(book *rules.RuleSet) func() []Rule {
	return func() (out []Rule) {
		for _, r := range book.All() {
			out = append(out, Rule{string(r.Action), string(r.Subject.Kind), r.Subject.Name, r.By, r.Since, r.Reason})
		}
		return out
	}
}

// Link is a link in the footer.
type Link struct{ Text, Href string }

// Sync is the methods of [relaysync.SyncManager] that the page calls for viewers.
type Sync interface {
	Status() relaysync.Status
	RepoRefs(ctx context.Context) ([]graspsync.RepoRef, error)
	RepoSummaries(ctx context.Context, refs ...graspsync.RepoRef) ([]relaysync.RepoStatus, error)
	RepoStatus(ctx context.Context, ref graspsync.RepoRef) (relaysync.RepoStatus, error)
}

// Purgatory is the method of [purgatory.Purgatory] that the page calls.
type Purgatory interface{ Status() purgatory.Status }

var (
	_ Sync      = (*relaysync.SyncManager)(nil)
	_ Purgatory = (*purgatory.Purgatory)(nil)
)
