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

// Config is the content of a page. Sync is required.
type Config struct {
	// Name is the domain that announcements list, for headings and instructions. The default is none.
	Name string
	// Sync follows relays.
	Sync Sync
	// Purgatory holds events until their git data arrives. Without it the page has no git section.
	Purgatory Purgatory
	// Ready returns the reason for which the server cannot work. It is called for each view of the
	// overview. Without it the page does not show the readiness.
	Ready func(ctx context.Context) error
	// Explain answers a question about an event, repository or relay, such as the method of
	// [explain.Explainer]. The question has at most 1,000 bytes and may come from a stranger. At most
	// 4 questions are answered concurrently, within 10 s each. Without it the page has no question
	// box.
	Explain func(ctx context.Context, question string) (explain.Explanation, error)
	// Rules returns the operator's rules in the order of display, for example [RulesOf] a
	// [rules.RuleSet]. It must not block, and is called while the page is viewed. Without it the page
	// has no rules.
	Rules func() []Rule
	// Links are further links for operators, such as the metrics, relative to the page.
	Links []Link
	// Version is the version of the program, and Folder its data folder, for the footer.
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

// Sync is the methods of [relaysync.SyncManager] that the page calls, concurrently. Without viewers
// nothing is called.
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
