package plan

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// Some relays answer what we ask and will not have us follow it, or a part of it: private
// ones, those that serve members. To ask again within the hour, for ever, is no use to
// anybody. What they refuse rests for a day, is then asked for once, and what came
// meanwhile is caught up with; all else stays as it is.

const (
	restFor = 24 * time.Hour
	// mostResting is how many refusals are kept apart.
	mostResting = 64
)

// resting are live filters that a relay refuses.
type resting struct {
	filters []nostr.Filter
	below   bool // of layer 4: nothing of it is followed live as long as anything rests
	until   time.Time
	since   time.Time // what came later is missed
}

// refuses takes in that the relay will not have us follow what a subscription has. What is
// refused together with other things is asked for apart from these, unless it was refused
// so before.
func (lv *live) refuses(r *relay, s *liveSub, since, now time.Time) {
	parts := byRole(s.filters)
	unknown := slices.ContainsFunc(parts, func(fs []nostr.Filter) bool { return !r.live.refusedAlone(roleOf(fs[0])) })
	if c := (change{reqs: parts}); len(parts) > 1 && unknown && c.fits(r) {
		lv.apply(r, c, now)
		lv.catchUp.lookSince(r, since)
		lv.catchUp.queueItems(r, lv.want.itemsOfAll(r, s.filters))
		return
	}
	lv.leaveAlone(r, resting{filters: s.filters, since: since}, now)
}

// leaveAlone has something rest for a day.
func (lv *live) leaveAlone(r *relay, k resting, now time.Time) {
	k.until = now.Add(lv.longer(restFor))
	if n := len(r.live.resting); n > 0 && r.live.resting[n-1].until.Sub(now) > restFor-time.Hour {
		k.until = r.live.resting[n-1].until // they are asked for together
	}
	r.live.resting = append(r.live.resting, k)
	if len(r.live.resting) > mostResting {
		all := r.live.resting[0]
		for _, k := range r.live.resting[1:] {
			all.filters = append(all.filters, k.filters...)
			all.below = all.below && k.below
			if k.since.Before(all.since) {
				all.since = k.since
			}
		}
		all.filters = lv.joined(r, all.filters)
		r.live.resting = []resting{all}
	}
}

// byRole puts the filters together that ask in the same way: a refusal is about that, more
// often than about values.
func byRole(fs []nostr.Filter) (out [][]nostr.Filter) {
	at := make(map[role]int)
	for _, f := range fs {
		i, ok := at[roleOf(f)]
		if !ok {
			i = len(out)
			at[roleOf(f)] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], f)
	}
	return out
}

// rested has what has rested long enough followed again.
func (lv *live) rested(r *relay, now time.Time) {
	kept := r.live.resting[:0]
	for _, k := range r.live.resting {
		if now.Before(k.until) {
			kept = append(kept, k)
			continue
		}
		if !k.below { // else it was asked for in rotation
			r.live.lost, r.live.putOff = append(r.live.lost, k.filters...), 0
			lv.catchUp.missedSome(r, k.since)
		}
	}
	clear(r.live.resting[len(kept):])
	r.live.resting = kept
}

// refusedAlone reports whether nothing but filters of this role were refused.
func (l *liveState) refusedAlone(as role) bool {
	return slices.ContainsFunc(l.resting, func(k resting) bool {
		return !k.below && !slices.ContainsFunc(k.filters, func(f nostr.Filter) bool { return roleOf(f) != as })
	})
}

// withoutResting takes from filters what rests.
func (l *liveState) withoutResting(fs []nostr.Filter) []nostr.Filter {
	if len(l.resting) == 0 {
		return fs
	}
	type value struct {
		role
		value string
	}
	rests := make(map[value]struct{})
	for _, k := range l.resting {
		for _, f := range k.filters {
			as := roleOf(f)
			if as.tag == "" {
				rests[value{as, ""}] = struct{}{}
			}
			for _, v := range f.Tags[as.tag] {
				rests[value{as, v}] = struct{}{}
			}
		}
	}
	out := make([]nostr.Filter, 0, len(fs))
	for _, f := range fs {
		as := roleOf(f)
		if _, all := rests[value{as, ""}]; all && as.tag == "" {
			continue
		}
		if as.tag != "" {
			left := slices.DeleteFunc(slices.Clone(f.Tags[as.tag]), func(v string) bool {
				_, ok := rests[value{as, v}]
				return ok
			})
			if len(left) == 0 {
				continue
			}
			f.Tags = filters.WithList(f.Tags, as.tag, left)
		}
		out = append(out, f)
	}
	return out
}

// restingFilters is how many filters rest.
func (l *liveState) restingFilters() (n int) {
	for _, k := range l.resting {
		n += len(k.filters)
	}
	return n
}
