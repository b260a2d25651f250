package gitserve

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Authority decides which refs may be pushed, and receives notifications about pushes. All methods
// may be called concurrently. A method may be called with or without the lock of the repository
// unless its comment excludes that.
type Authority interface {
	// AuthorizedState returns the newest authorized state event of a repository, or nil. Its
	// objects may be missing.
	AuthorizedState(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error)
	// Tip returns the tip that an event names. If the event is not stored, known is false. The tip
	// is zero if the event belongs to another repository, or is neither a pull request nor an
	// update of a pull request.
	Tip(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (tip nip34.ObjectID, known bool, err error)

	// AdmitPullRefs returns the refs of events that a push may not create, with reasons. It is called
	// before git creates them. dir is the folder of the repository. bytes is the size of the data
	// for all these refs together, 0 if unknown. AdmitPullRefs may remove other refs to make room. It
	// returns nil if there are no limits.
	AdmitPullRefs(ctx context.Context, ref graspsync.RepoRef, dir string, ids []graspsync.EventID, bytes int64) (refused map[graspsync.EventID]string, err error)
	// PullBytes returns the size of pull requests of other authors in the repositories of an owner,
	// as far as known. They do not count for the owner. It returns 0 if AdmitPullRefs removes nothing.
	PullBytes(owner graspsync.PubKey) int64

	// BeforePush is called before git moves refs. The next holder of the lock must not move these
	// refs back. It may do nothing.
	BeforePush(ref graspsync.RepoRef, refs []nip34.RefName)
	// AfterPush is called with the refs of a push after git ended, with or without an error, and
	// after the lock was released. Git may have refused some of them.
	AfterPush(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) error
	// Staged is called with the events for which data was staged, without the lock. The events may
	// have arrived in between. It may do nothing.
	Staged(ref graspsync.RepoRef, ids []graspsync.EventID)
	// AwaitServed returns when the events that waited for a push are served, or when ctx ends. It
	// is called without the lock. The client gets the result of its push afterwards, so that it
	// finds the events. AwaitServed returns nil immediately if no event waits.
	AwaitServed(ctx context.Context, ref graspsync.RepoRef) error
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
	// An event was stored or removed between two checks.
	refusedMeanwhile = "the event with this id has come or gone meanwhile: push again"
)

// judge sets the reason of each refused command, and marks commands for events that are not stored.
// again is set for repeated checks of a push.
func judge(ctx context.Context, a Authority, ref graspsync.RepoRef, req *request, again bool) error {
	var state *nip34.State
	asked := false
	for _, c := range req.commands {
		if c.reason != "" {
			continue
		}
		if id, ok := eventOf(c.ref); ok {
			reason, known, err := judgeEvent(ctx, a, ref, id, c)
			if err != nil {
				return err
			}
			if again && c.staged == known {
				reason = cmp.Or(reason, refusedMeanwhile)
			}
			c.reason, c.staged = reason, !known
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

// otherwise returns the reason why a state does not allow a command, and the remedy.
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

// ration calls Authority.AdmitPullRefs for the refs of events that a push creates, and sets the reason of
// refused commands. now has the current refs. If the push also changes branches or tags, the size
// of the data for events is unknown.
func ration(ctx context.Context, a Authority, ref graspsync.RepoRef, dir string, commands []*command, now map[nip34.RefName]nip34.ObjectID, bytes int64) (refused bool, err error) {
	makes := make(map[graspsync.EventID]*command)
	var ids []graspsync.EventID
	for _, c := range commands {
		id, of := eventOf(c.ref)
		switch {
		case !of && now[c.ref] != c.new:
			bytes = 0
		case !of:
		case now[c.ref].IsZero():
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

func judgeEvent(ctx context.Context, a Authority, ref graspsync.RepoRef, id graspsync.EventID, c *command) (reason string, known bool, err error) {
	if c.new.IsZero() {
		return refusedDelete, false, nil
	}
	tip, known, err := a.Tip(ctx, ref, id)
	if err != nil {
		return "", false, fmt.Errorf("reading an event: %w", err)
	}
	if known && tip != c.new {
		return refusedTip, true, nil
	}
	return "", known, nil
}

// eventOf parses the name of a ref of an event.
func eventOf(name nip34.RefName) (graspsync.EventID, bool) {
	digits, ok := strings.CutPrefix(name.String(), "refs/nostr/")
	if !ok {
		return graspsync.EventID{}, false
	}
	id, err := graspsync.ParseEventID(digits)
	return id, err == nil
}
