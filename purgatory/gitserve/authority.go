package gitserve

import (
	"context"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Authority decides which refs may be pushed, and is notified of pushes. All methods may be called
// concurrently, and, if their comments do not say, with or without the lock of the repository.
type Authority interface {
	// AuthorizedState returns the newest authorized state, or nil. Its objects may be missing.
	AuthorizedState(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error)
	// Tip returns the commit that an event names. known is false if the event is not stored. The
	// tip is zero if the event is no pull request or update for the repository.
	Tip(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (tip nip34.ObjectID, known bool, err error)

	// AdmitPullRefs returns the refs of events that a push may not create, with reasons. It may
	// remove other refs of the repository in dir to make room. bytes is the size of the data for all
	// these refs, 0 if unknown.
	AdmitPullRefs(ctx context.Context, ref graspsync.RepoRef, dir string, ids []graspsync.EventID, bytes int64) (refused map[graspsync.EventID]string, err error)

	// Pushing is called under the lock before git moves refs. Its next holder must not move them
	// back.
	Pushing(ref graspsync.RepoRef, refs []nip34.RefName)
	// AfterPush is called without the lock after git ended, even with an error. Git may have
	// refused some refs.
	AfterPush(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) error
	// Staged is called without the lock with events for which data was staged, which may have
	// arrived.
	Staged(ref graspsync.RepoRef, ids []graspsync.EventID)
	// WaitServed returns when the events that waited for a push are served, or when ctx ends. It
	// is called without the lock, before the client gets the result.
	WaitServed(ctx context.Context, ref graspsync.RepoRef) error
}

// Reasons for refusing a push.
const (
	refusedNoState = "no state event of this repository is known yet: publish it first"
	refusedState   = "the newest state event says otherwise"
	refusedTip     = "the event with this id names another commit"
	refusedDelete  = "refs of events can't be deleted"
	refusedDisk    = "not enough free disk on the server"
	refusedOther   = "atomic push failed: another ref of this push was refused"
	refusedStale   = "it has changed meanwhile: fetch first"
	refusedMissing = "missing necessary objects"
	refusedTwice   = "multiple updates for this ref"
)

// judge sets the reason of each refused command, and marks commands for events that are not stored.
func judge(ctx context.Context, a Authority, ref graspsync.RepoRef, req *request) error {
	var state *nip34.State
	asked := false
	for _, c := range req.commands {
		if c.reason != "" {
			continue
		}
		if id, ok := refplan.EventOf(c.ref); ok {
			if err := judgeEvent(ctx, a, ref, id, c); err != nil {
				return err
			}
			continue
		}
		if !asked {
			var err error
			if state, err = a.AuthorizedState(ctx, ref); err != nil {
				return fmt.Errorf("reading the newest state: %w", err)
			}
			asked = true
		}
		switch {
		case state == nil:
			c.reason = refusedNoState
		case state.Refs[c.ref] != c.new: // a zero id equals a missing ref
			c.reason = otherwise(state, c)
		}
	}
	return nil
}

func otherwise(state *nip34.State, c *command) string {
	name := graspsync.Printable(c.ref.String())
	is := "has " + name + " at " + state.Refs[c.ref].String()
	var do string
	switch {
	case state.Refs[c.ref].IsZero():
		is, do = "has no "+name, "publish a state event that has it first"
	case c.new.IsZero():
		do = "publish a state event without it first"
	default:
		do = "publish a state event that has it at " + c.new.String() + " first"
	}
	return fmt.Sprintf("%s: state %s (%s) %s: %s", refusedState, state.ID, state.CreatedAt.Time().UTC().Format(time.DateTime), is, do)
}

// ration refuses refs of events that the Authority does not admit. now has the current refs. bytes
// is unknown if the push also changes branches or tags.
func ration(ctx context.Context, a Authority, ref graspsync.RepoRef, dir string, commands []*command, now map[string]nip34.ObjectID, bytes int64) (refused bool, err error) {
	makes := make(map[graspsync.EventID]*command)
	var ids []graspsync.EventID
	for _, c := range commands {
		id, of := refplan.EventOf(c.ref)
		switch {
		case !of && now[c.ref.String()] != c.new:
			bytes = 0
		case !of:
		case now[c.ref.String()].IsZero():
			ids = append(ids, id)
			makes[id] = c
		}
	}
	if len(ids) == 0 {
		return false, nil
	}
	over, err := a.AdmitPullRefs(ctx, ref, dir, ids, bytes)
	if err != nil {
		return false, fmt.Errorf("checking the pull request quota: %w", err)
	}
	for id, why := range over {
		makes[id].reason = why
	}
	return len(over) > 0, nil
}

func judgeEvent(ctx context.Context, a Authority, ref graspsync.RepoRef, id graspsync.EventID, c *command) error {
	if c.new.IsZero() {
		c.reason = refusedDelete
		return nil
	}
	tip, known, err := a.Tip(ctx, ref, id)
	if err != nil {
		return fmt.Errorf("reading an event: %w", err)
	}
	if c.staged = !known; known && tip != c.new {
		c.reason = refusedTip
	}
	return nil
}
