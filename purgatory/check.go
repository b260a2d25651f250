package purgatory

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// checkRetry is the wait after the list of repositories could not be read.
const checkRetry = time.Minute

// runChecks has every repository looked at in each period that is listed or whose
// announcement waits, or that is there though nobody announces it, spread over it. The
// period is never quite the same: servers that were started together do not ask others
// together for ever.
func (p *Purgatory) runChecks(ctx context.Context) {
	p.findLost(ctx)
	timer := time.NewTimer(p.cfg.Check/10 + rand.N(p.cfg.Check/10+1))
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
				p.cfg.Logger.Warn("listing repositories failed", keyError, printable(err.Error()))
			}
			timer.Reset(checkRetry)
			continue
		}
		left, err := p.inService(ctx)
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.Warn("listing repositories failed", keyError, printable(err.Error()))
		}
		identifiers = slices.AppendSeq(identifiers, maps.Keys(left))
		slices.Sort(identifiers)
		identifiers = slices.Compact(identifiers)
		began := time.Now()
		for i, identifier := range identifiers {
			at := began.Add(time.Duration(float64(p.cfg.Check) * 0.8 * float64(i) / float64(len(identifiers))))
			timer.Reset(time.Until(at))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			p.tell(look{identifier: identifier, why: causes{check: true, left: left[identifier]}})
		}
		timer.Reset(time.Until(began.Add(p.cfg.Check*9/10 + rand.N(p.cfg.Check/10+1))))
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
		p.cfg.Logger.Warn("listing repositories failed", keyError, printable(err.Error()))
	}
	slices.Sort(listed)
	lost := slices.DeleteFunc(slices.Compact(listed), func(identifier string) bool { return len(there[identifier]) > 0 })
	if len(lost) == 0 {
		return
	}
	p.cfg.Logger.Warn("repositories are announced and not there: they are made again and their data is hunted for", "count", len(lost))
	for _, identifier := range lost {
		p.tell(look{identifier: identifier, why: causes{check: true}})
	}
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
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
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
