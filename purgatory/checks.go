package purgatory

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// checks have every repository looked at once in a while, and what has departed go.
type checks struct {
	cfg    *Config
	repos  containedRepositories
	inbox  *inbox
	reader *reader
}

// checkRetry is the wait after the list of repositories could not be read.
const checkRetry = time.Minute

// sweepPeriod is the time between two looks at what has departed.
const sweepPeriod = time.Hour

// run has every repository looked at in each period that is listed or whose
// announcement waits, or that is there though nobody announces it, spread over it. The
// period is never quite the same: servers that were started together do not ask others
// together for ever.
func (c *checks) run(ctx context.Context) {
	c.findLost(ctx)
	timer := time.NewTimer(c.cfg.fixed.Check/10 + rand.N(c.cfg.fixed.Check/10+1))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		identifiers, err := c.reader.identifiers(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
			}
			timer.Reset(checkRetry)
			continue
		}
		left, err := c.inService(ctx)
		if err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
		}
		identifiers = slices.AppendSeq(identifiers, maps.Keys(left))
		slices.Sort(identifiers)
		identifiers = slices.Compact(identifiers)
		began := time.Now()
		for i, identifier := range identifiers {
			at := began.Add(time.Duration(float64(c.cfg.fixed.Check) * 0.8 * float64(i) / float64(len(identifiers))))
			timer.Reset(time.Until(at))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			c.inbox.tell(news{identifier: identifier, why: resolve.Reasons{Check: true, Left: left[identifier]}})
		}
		timer.Reset(time.Until(began.Add(c.cfg.fixed.Check*9/10 + rand.N(c.cfg.fixed.Check/10+1))))
	}
}

// findLost has repositories looked at right away that are announced and not there, and says
// how many are. If a folder was lost, or is not that of these events, clients would hear for
// up to an hour that there is no such repository, and the operator nothing at all.
func (c *checks) findLost(ctx context.Context) {
	there, err := c.inService(ctx)
	var listed []string
	if err == nil {
		listed, err = c.reader.listed(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
	slices.Sort(listed)
	count, readable := 0, true
	for _, identifier := range slices.Compact(listed) {
		lost := 0
		if len(there[identifier]) == 0 {
			lost = 1 // at least: so it is told even if nothing can be read
		}
		if readable {
			n, err := c.reader.lost(ctx, identifier, there[identifier])
			if ctx.Err() != nil {
				return
			}
			if readable = err == nil; readable {
				lost = n
			} else { // the check comes to the others: a store that hangs is waited for once
				c.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
			}
		}
		if count += lost; lost > 0 {
			c.inbox.tell(news{identifier: identifier, why: resolve.Reasons{Check: true}})
		}
	}
	if count > 0 {
		c.cfg.Logger.Warn("repositories are announced and not there: they are restored or made again, and what they lack is hunted for", "count", count)
	}
}

// sweep removes what has departed and was not put back in time.
func (c *checks) sweep(ctx context.Context) {
	timer := time.NewTicker(sweepPeriod)
	defer timer.Stop()
	for {
		if err := c.repos.Sweep(ctx, time.Now().Add(-c.cfg.Times.Departed)); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("repositories that have departed could not be removed", keyError, graspsync.Printable(err.Error()))
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// ownedBy has the repositories of an owner looked at who may not announce them any more, and those
// in which a state of theirs may have decided that is gone.
func (c *checks) ownedBy(ctx context.Context, owner graspsync.PubKey) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.fixed.Timeout)
	defer cancel()
	err := c.repos.eachOf(ctx, owner, func(ref graspsync.RepoRef) {
		c.inbox.tell(news{identifier: ref.Identifier, why: resolve.Reasons{
			Left: map[graspsync.RepoRef]bool{ref: true}, Unsaid: map[graspsync.PubKey]bool{owner: true},
		}})
	})
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
}

// inService returns the repositories that are there, by identifier.
func (c *checks) inService(ctx context.Context) (map[string]map[graspsync.RepoRef]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.fixed.Timeout)
	defer cancel()
	out := make(map[string]map[graspsync.RepoRef]bool)
	err := c.repos.eachOf(ctx, graspsync.PubKey{}, func(ref graspsync.RepoRef) {
		if out[ref.Identifier] == nil {
			out[ref.Identifier] = make(map[graspsync.RepoRef]bool)
		}
		out[ref.Identifier][ref] = true
	})
	return out, err
}
