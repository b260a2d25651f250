// Package embedding has what is the same whatever relay graspsync is embedded in: which of the relay's hooks are
// called when, what is known of the events that it has stored, and of the disk.
package embedding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Sentinels of the outcomes of synced events.
var (
	// ErrRejected is wrapped by the reason of an event that a hook of the relay, or a rule, refused.
	ErrRejected = errors.New("rejected by the relay")
	// ErrHook is wrapped where a hook of the relay panicked.
	ErrHook = errors.New("hook of the relay failed")
)

// Env is what the parts of an embedding share. It is set before they are used, and not changed then.
type Env struct {
	Store   *eventstoreadapter.Store
	Manager Manager
	Hooks   Hooks
	Rules   relaysync.Rules // nil: there are none
	Us      nip34.Identity
	Holding bool // the policy holds events
	Room    *Room
	Removed *Removals
	Log     *slog.Logger
}

// Manager is what is needed of a [relaysync.SyncManager].
type Manager interface {
	Stored(event graspsync.Event)
	Removed(event graspsync.Event)
	Refused(event graspsync.Event, reason string)
	HeldFrom(id graspsync.EventID) graspsync.Source
	NotReleased(id graspsync.EventID, o graspsync.Outcome)
	Ready() <-chan struct{}
	Judge(ctx context.Context, event graspsync.Event) (graspsync.Verdict, error)
}

// Hooks are those of a relay. All of them are set, may be called concurrently, and do not panic.
type Hooks struct {
	// Admit asks whether an event that comes by sync, or is released, may be stored. The zero Outcome says that
	// it may.
	Admit func(ctx context.Context, in graspsync.Incoming) graspsync.Outcome
	// Undeletable returns why something must stay that a deletion would remove, "" if nothing must.
	Undeletable func(ctx context.Context, deletion graspsync.Event) (msg string, err error)
	// Stored is told an event that is newly stored, and Removed one that has left the backend.
	Stored, Removed func(ctx context.Context, e graspsync.Event)
}

// FollowRemovals tells the relay what the backend has removed. Whoever comes first does so for all.
func (v *Env) FollowRemovals(ctx context.Context) {
	for _, e := range v.Removed.Take() {
		v.Hooks.Removed(ctx, e)
	}
}

// Remove removes an event as moderation does. One that is not stored is no error.
func (v *Env) Remove(ctx context.Context, e graspsync.Event) error {
	if err := v.Store.Remove(ctx, e); err != nil {
		return err
	}
	v.Removed.Add(e)
	v.FollowRemovals(context.WithoutCancel(ctx))
	v.Manager.Removed(e)
	return nil
}

// Blocked returns why a rule blocks an event, "" if none does.
func (v *Env) Blocked(e graspsync.Event) string {
	if v.Rules == nil {
		return ""
	}
	reason, _ := v.Rules.Blocks(e)
	return reason
}

// Protect turns a panic of the embedder's code into an error.
func Protect(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	f()
	return nil
}
