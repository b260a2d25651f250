package purgatory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// checkRetry is the wait after the list of repositories could not be read.
const checkRetry = time.Minute

// runChecks has every repository looked at in each period that is listed or whose
// announcement waits, or that is there though nobody announces it, spread over it. The
// period is never quite the same: servers that were started together do not ask others
// together for ever.
func (p *Purgatory) runChecks(ctx context.Context) {
	p.findLost(ctx)
	timer := time.NewTimer(p.cfg.fixed.Check/10 + rand.N(p.cfg.fixed.Check/10+1))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		identifiers, err := p.identifiers(ctx)
		if err != nil {
			if ctx.Err() == nil {
				p.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
			}
			timer.Reset(checkRetry)
			continue
		}
		left, err := p.inService(ctx)
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
		}
		identifiers = slices.AppendSeq(identifiers, maps.Keys(left))
		slices.Sort(identifiers)
		identifiers = slices.Compact(identifiers)
		began := time.Now()
		for i, identifier := range identifiers {
			at := began.Add(time.Duration(float64(p.cfg.fixed.Check) * 0.8 * float64(i) / float64(len(identifiers))))
			timer.Reset(time.Until(at))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			p.tell(look{identifier: identifier, why: causes{check: true, left: left[identifier]}})
		}
		timer.Reset(time.Until(began.Add(p.cfg.fixed.Check*9/10 + rand.N(p.cfg.fixed.Check/10+1))))
	}
}

// findLost has repositories looked at right away that are announced and not there, and says
// how many are. If a folder was lost, or is not that of these events, clients would hear for
// up to an hour that there is no such repository, and the operator nothing at all.
func (p *Purgatory) findLost(ctx context.Context) {
	there, err := p.inService(ctx)
	var listed []string
	if err == nil && there != nil { // else there is nobody to ask
		listed, err = p.listed(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
	slices.Sort(listed)
	count, readable := 0, true
	for _, identifier := range slices.Compact(listed) {
		lost := 0
		if len(there[identifier]) == 0 {
			lost = 1 // at least: so it is told even if nothing can be read
		}
		if readable {
			n, err := p.lost(ctx, identifier, there[identifier])
			if ctx.Err() != nil {
				return
			}
			if readable = err == nil; readable {
				lost = n
			} else { // the check comes to the others: a store that hangs is waited for once
				p.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
			}
		}
		if count += lost; lost > 0 {
			p.tell(look{identifier: identifier, why: causes{check: true}})
		}
	}
	if count > 0 {
		p.cfg.Logger.Warn("repositories are announced and not there: they are restored or made again, and what they lack is hunted for", "count", count)
	}
}

// lost counts the repositories with an identifier that are announced and not among those
// that are there. Others of the same name may be: forks are called as what they are of.
func (p *Purgatory) lost(ctx context.Context, identifier string, there map[graspsync.RepoRef]bool) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	announcements, err := p.relay.Announcements(ctx, identifier)
	if err != nil {
		return 0, fmt.Errorf("reading announcements: %w", err)
	}
	lost := make(map[graspsync.RepoRef]struct{})
	for _, a := range announcements {
		if !there[a.Ref] && !hasExpired(a.Event, time.Now()) {
			lost[a.Ref] = struct{}{}
		}
	}
	return len(lost), nil
}

func (p *Purgatory) identifiers(ctx context.Context) ([]string, error) {
	out, err := p.listed(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range p.AllAnnouncements() {
		out = append(out, a.Ref.Identifier)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// listed returns the identifiers of what is served.
func (p *Purgatory) listed(ctx context.Context) (out []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	defer p.recovered(&err, ofRelay)
	for identifier, err := range p.relay.Identifiers(ctx) {
		if err != nil {
			return nil, err
		}
		out = append(out, identifier)
	}
	return out, nil
}
