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

// Authority says what may be pushed, and is told what was. All methods may be called
// concurrently; those of which nothing else is said are also called while the lock of the
// repository is held.
type Authority interface {
	// AuthorizedState returns the newest state that decides about the refs of a repository,
	// whether or not its objects are here; nil if there is none.
	AuthorizedState(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error)
	// Tip returns what an event says is its tip. known is false if no event with that
	// id is here; the tip is zero if it is no pull request and no update of one, or
	// not one of this repository.
	Tip(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) (tip nip34.ObjectID, known bool, err error)

	// Ration says which refs of events a push may not make, and why, when git is about to
	// make them. The repository is in dir; bytes is what came for all of them together, 0 if
	// that is not known. It may remove others to make room. Without limits it returns nil.
	Ration(ctx context.Context, ref graspsync.RepoRef, dir string, ids []graspsync.EventID, bytes int64) (refused map[graspsync.EventID]string, err error)
	// PullBytes returns how many bytes pull requests of strangers take up in the repositories of
	// an owner, as far as that is known: they do not count for the owner. It returns 0 if Ration
	// removes nothing.
	PullBytes(owner graspsync.PubKey) int64

	// BeforePush is told which refs git is about to move: who gets the lock next must know
	// that these are not to be moved back. It may do nothing.
	BeforePush(ref graspsync.RepoRef, refs []nip34.RefName)
	// AfterPush is told which refs a push has asked to be changed, when git has ended,
	// however it did, and the lock is free again. Git may have refused some of them.
	AfterPush(ctx context.Context, ref graspsync.RepoRef, refs []nip34.RefName) error
	// Staged is told for which events something was staged, after it was and without the
	// lock: they may have come meanwhile. It may do nothing.
	Staged(ref graspsync.RepoRef, ids []graspsync.EventID)
	// AwaitServed returns when what waited for a push is served, or ctx ends; it is called
	// without the lock. Whoever pushed hears that it is done then: a client that reads at
	// once finds it. Where nothing waits it returns nil at once.
	AwaitServed(ctx context.Context, ref graspsync.RepoRef) error
}

// The reasons for refusing a push.
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
	// What was known has gone, or what was not has come.
	refusedMeanwhile = "the event with this id has come or gone meanwhile: push again"
)

// judge gives every command that may not be done its reason, and says which of the others are for
// events that are not stored. again is set when a push that was judged before is judged again.
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
				return fmt.Errorf("looking for the newest state: %w", err)
			}
			asked = true
		}
		switch {
		case state == nil:
			c.reason = refusedNoState
		case state.Refs[c.ref] != c.new: // a zero id and no ref are the same
			c.reason = otherwise(state, c)
		}
	}
	return nil
}

// otherwise says what a state has, to who wants to push something else, and what to do.
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

// ration asks about the refs of events that a push is to make, of which now
// are there, and gives those that have no room their reason. What else comes with branches or tags
// is theirs as far as anybody can tell, unless they are there as well: anybody may name those.
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
	over, err := a.Ration(ctx, ref, dir, ids, bytes)
	if err != nil {
		return false, fmt.Errorf("asking for room: %w", err)
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
		return "", false, fmt.Errorf("looking for an event: %w", err)
	}
	if known && tip != c.new {
		return refusedTip, true, nil
	}
	return "", known, nil
}

// eventOf reads the name of an event's ref.
func eventOf(name nip34.RefName) (graspsync.EventID, bool) {
	digits, ok := strings.CutPrefix(name.String(), "refs/nostr/")
	if !ok {
		return graspsync.EventID{}, false
	}
	id, err := graspsync.ParseEventID(digits)
	return id, err == nil
}
