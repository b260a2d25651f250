package embedding

import (
	"context"
	"fmt"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Undeletable returns why a deletion must be refused, or "": a target must stay, or belongs to another
// author.
func (c *Core) Undeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	if perr := Protect(func() { msg, err = c.askDeletable(ctx, deletion) }); perr != nil {
		return "", fmt.Errorf("%w: deletion: %w", ErrHook, perr)
	}
	return msg, err
}

func (c *Core) askDeletable(ctx context.Context, deletion graspsync.Event) (msg string, err error) {
	if deletion.Kind != graspsync.KindDeletion || IsSynced(ctx) && !c.Hooks.AsksDeletions() {
		return "", nil
	}
	targets, err := c.Store.Targets(ctx, deletion)
	if err != nil {
		return "", err
	}
	removed := nip34.NewTombstones(c.Us)
	removed.Add(deletion)
	for _, target := range targets {
		version := !nostr.IsRegularKind(target.Kind) && target.PubKey == deletion.PubKey // it can be newer than the deletion
		if !removed.Covers(target) && (version || IsSynced(ctx)) {
			continue
		}
		if msg, err = c.Hooks.MayDelete(ctx, target, deletion); msg != "" || err != nil {
			return msg, err
		}
	}
	return "", nil
}
