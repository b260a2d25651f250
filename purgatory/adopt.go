package purgatory

import (
	"context"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// adoptIn looks for refs of events in a repository that was looked at, and has those wait
// for their events whose event is not here: what was pushed when the process was
// killed before anybody could be told, whose ref could not be removed, or whose event
// was served and then deleted. It is called without the lock of the repository.
//
// Nothing of that is removed at once: who has lost events gets them again by sync, and
// must not have lost their data by then.
func (p *Purgatory) adoptIn(ctx context.Context, ref graspsync.RepoRef, looked *repository) error {
	if _, knows := p.relay.(Knower); !knows || looked.failed != nil {
		return nil //nolint:nilerr // what failed was told of by who looked; the refs of what is served look the same
	}
	for name := range looked.refs.At {
		id, ok := eventOf(name)
		if !ok || !p.roomFor(ref, id) {
			continue
		}
		if err := p.pushedFor(ctx, ref, id, false); err != nil {
			return err
		}
	}
	return nil
}

// roomFor reports whether data that was pushed for an event has room, or waits
// already.
func (p *Purgatory) roomFor(ref graspsync.RepoRef, id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.ledger.Get(id); waits {
		_, _, room := p.ledger.Join(id, ref)
		return room
	}
	return p.ledger.Check(time.Now(), placeholder(ref, id)) != ledger.PushedFull
}
