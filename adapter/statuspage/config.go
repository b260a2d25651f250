package statuspage

import (
	"context"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/purgatory"

	relaysync "github.com/graspsync/graspsync/sync"
)

// Config is the content of a page. Sync and Explain are required.
type Config struct {
	// Name is the domain that announcements list.
	Name string
	Sync Sync
	// Purgatory holds events. Without it the page has no git section.
	Purgatory Purgatory
	// Ready returns why the server cannot work.
	Ready func(ctx context.Context) error
	// Explain answers a question of at most 1,000 bytes within 10 s, at most 4 concurrently. See
	// [explain.Explainer].
	Explain         func(ctx context.Context, question string) (explain.Explanation, error)
	Links           []Link
	Version, Folder string
}

// Link is a link in the footer.
type Link struct{ Text, Href string }

// Sync is the methods of [relaysync.SyncManager] that the page calls.
type Sync interface {
	Status() relaysync.Status
	RepoRefs(ctx context.Context) ([]graspsync.RepoRef, error)
	RepoStatus(ctx context.Context, refs ...graspsync.RepoRef) ([]relaysync.RepoStatus, error)
}

// Purgatory is the method of [purgatory.Purgatory] that the page calls.
type Purgatory interface{ Status() purgatory.Status }

var (
	_ Sync      = (*relaysync.SyncManager)(nil)
	_ Purgatory = (*purgatory.Purgatory)(nil)
)
