package sync

import (
	"context"
	"errors"
	"time"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
)

// settleLimit is the maximum wait for events in the pipeline when a connection ends.
const settleLimit = 10 * time.Second

// learnFromLoss learns from the request after which the relay disconnected twice in a row. A single
// loss may be chance.
func (c *relayConn) learnFromLoss() {
	if c.lostByRelay {
		_ = c.contain(func() {
			for _, a := range c.session.LearnFromLoss() {
				if a, ok := a.(session.Learned); ok && c.stats.lostAgain(a.Kind) {
					c.learn(a)
				}
			}
		})
	}
}

// report sends the end of the connection to the loop, after its events in the pipeline are saved or
// 10 seconds. The progress of a batch counts only if its events are saved.
func (c *relayConn) report() {
	var cursors map[plan.BatchID][]plan.Cursor // none if the session panicked
	_ = c.contain(func() { cursors = c.session.Cursors() })
	settled := make(chan struct{}, len(c.batches))
	for _, b := range c.batches {
		b.finish(func() { settled <- struct{}{} })
	}
	timer := time.NewTimer(settleLimit)
	defer timer.Stop()
	late := false
	for range c.batches {
		if late {
			break
		}
		select {
		case <-settled:
		case <-timer.C:
			late = true
		case <-c.m.ingest.ended: // the manager has ended
			late = true
		}
	}
	for id, b := range c.batches {
		if late || b.failed.Load() {
			delete(cursors, id)
		}
	}
	err := context.Cause(c.ctx)
	if errors.Is(err, errUnproductive) {
		c.m.telemetry.drop("unproductive", 1)
	}
	c.m.inbox.put(connEnd{conn: c, err: err, cursors: cursors, aliveAt: c.aliveAt(err)})
}

// aliveSlack is the maximum time until a [Conn] that is read notices the loss of its relay.
const aliveSlack = time.Minute

// aliveAt returns a time at which the relay was connected and all its messages were read. It is a
// minute before the loss, because a reader notices a loss, or the last message if nobody read then.
func (c *relayConn) aliveAt(cause error) time.Time {
	alive := c.lostAt.Add(-aliveSlack)
	// Only the wall clock shows that the machine was suspended.
	slept := c.lostAt.Round(0).Sub(c.readingAt.Round(0)) - c.lostAt.Sub(c.readingAt)
	if c.readingAt.After(alive) || slept > aliveSlack || errors.Is(cause, errHung) { // it may have hung for an unknown time
		return c.heardAt
	}
	return alive
}
