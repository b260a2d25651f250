package purgatory

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// checks have every repository looked at once in a while, and what has departed go.
type checks struct {
	cfg        *Config
	repos      containedRepositories
	inbox      *inbox
	findings   *findings
	reader     *reader
	departures *departures
}

// checkRetry is the wait after the repositories could not be listed, and between two looks at whether
// lost announcements are back.
const checkRetry = time.Minute

// sweepPeriod is the time between two looks at what has departed.
const sweepPeriod = time.Hour

// run has every repository looked at in each period that is announced, or in service, spread over it.
// The period is never quite the same, so that servers that were started together do not ask others
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
		announced, there, err := c.list(ctx)
		if err != nil {
			timer.Reset(checkRetry)
			continue
		}
		if err := c.judge(ctx, announced, there, departuresLeast); err != nil || c.departures.unconfirmed() > 0 {
			c.findLost(ctx)
			timer.Reset(checkRetry)
			continue
		}
		// Only what nobody announced when all was listed may leave in this round: a store that
		// loses its events later in the round must not have the others leave one by one.
		left := make(map[string]map[graspsync.RepoRef]bool)
		for ref, ours := range announced {
			if ours {
				left[ref.Identifier] = nil
			}
		}
		for ref := range there {
			of := left[ref.Identifier]
			if of == nil {
				of = make(map[graspsync.RepoRef]bool)
				left[ref.Identifier] = of
			}
			if !announced[ref] {
				of[ref] = true
			}
		}
		identifiers := slices.Sorted(maps.Keys(left))
		began := time.Now()
		for i, identifier := range identifiers {
			at := began.Add(time.Duration(float64(c.cfg.fixed.Check) * 0.8 * float64(i) / float64(len(identifiers))))
			timer.Reset(time.Until(at))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			c.inbox.tell(news{identifier: identifier, why: refplan.Reasons{Check: true, Left: left[identifier]}})
		}
		timer.Reset(time.Until(began.Add(c.cfg.fixed.Check*9/10 + rand.N(c.cfg.fixed.Check/10+1))))
	}
}

// findLost has repositories looked at right away that are announced and not in service, and logs their
// number. If a folder was lost, or is not that of these events, clients would hear for up to an hour
// that there is no such repository, and the operator nothing at all. While most repositories have no
// announcement it returns only when the operator has confirmed that, or the events are back.
func (c *checks) findLost(ctx context.Context) {
	for {
		announced, there, err := c.list(ctx)
		if err == nil {
			c.restore(announced, there)
			err = c.judge(ctx, announced, there, 0)
		}
		if err == nil && c.departures.unconfirmed() == 0 {
			return
		}
		select {
		case <-time.After(checkRetry):
		case <-ctx.Done():
			return
		}
	}
}

// judge has no repository leave if more than least, and more than half of those in service, have no
// announcement, neither one that lists us nor another one: their events may be lost.
func (c *checks) judge(ctx context.Context, announced, there map[graspsync.RepoRef]bool, least int) error {
	missing := maps.Clone(there)
	maps.DeleteFunc(missing, func(ref graspsync.RepoRef, _ bool) bool {
		_, known := announced[ref]
		return known
	})
	many := func() bool { return len(missing) > least && 2*len(missing) > len(there) }
	if many() { // the relay may not have given all
		for ref := range missing {
			accepted, err := c.reader.accepted(ctx, ref)
			if err != nil {
				return err
			}
			if accepted {
				delete(missing, ref)
			}
		}
	}
	if !many() { // those that are kept stay, or strangers who announce others would have them leave
		maps.DeleteFunc(missing, func(ref graspsync.RepoRef, _ bool) bool { return !c.departures.keeps(ref) })
	}
	begins, ends, err := c.departures.keep(ctx, missing, len(there))
	switch {
	case begins:
		c.cfg.Logger.Error("most repositories have no announcement, and none of them leaves before the operator confirms that: are the events lost?",
			"count", len(missing), "of", len(there))
	case ends:
		c.cfg.Logger.Info("repositories without an announcement leave again: those that were kept are announced, or have left", "of", len(there))
	}
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("records of kept repositories could not be written", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

// restore has repositories looked at that are announced and not in service.
func (c *checks) restore(announced, there map[graspsync.RepoRef]bool) {
	count := 0
	for ref, ours := range announced {
		if ours && !there[ref] {
			count++
			c.findings.touch(ref)
			c.inbox.tell(news{identifier: ref.Identifier, why: refplan.Reasons{Check: true}})
		}
	}
	if count > 0 {
		c.cfg.Logger.Warn("repositories are announced and not there: they are restored or made again, and what they lack is hunted for", "count", count)
	}
}

// list returns the repositories that are announced, each with whether it is ours, and those that are in
// service.
func (c *checks) list(ctx context.Context) (announced, there map[graspsync.RepoRef]bool, err error) {
	if there, err = c.inService(ctx); err == nil {
		announced, err = c.reader.announcedRefs(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
	return announced, there, err
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
		c.inbox.tell(news{identifier: ref.Identifier, why: refplan.Reasons{
			Left: map[graspsync.RepoRef]bool{ref: true}, Unsaid: map[graspsync.PubKey]bool{owner: true},
		}})
	})
	if err != nil && ctx.Err() == nil {
		c.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
}

// inService returns the repositories that are in service.
func (c *checks) inService(ctx context.Context) (map[graspsync.RepoRef]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.fixed.Timeout)
	defer cancel()
	out := make(map[graspsync.RepoRef]bool)
	err := c.repos.eachOf(ctx, graspsync.PubKey{}, func(ref graspsync.RepoRef) { out[ref] = true })
	return out, err
}
