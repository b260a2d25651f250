package sync

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// RelayExplanation says why a relay is followed, or is not, and how that goes. String has it in
// sentences.
type RelayExplanation struct {
	Now time.Time          `json:"now"`
	URL graspsync.RelayURL `json:"url"`
	Is  RelayStanding      `json:"is"`
	Why []string           `json:"why,omitempty"`
	// Status is nil for one that is not followed.
	Status *RelayStatus `json:"status,omitempty"`
	// LeftOut is what it is not asked for, and why.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Listed is how many repositories that are ours list it.
	Listed   int                 `json:"listed"`
	Examples []graspsync.RepoRef `json:"examples,omitempty"` // up to 3 of these
}

// RelayStanding is what a relay is to us.
type RelayStanding string

// What a relay is.
const (
	RelayFollowed    RelayStanding = "followed"
	RelayOurs        RelayStanding = "ours"         // it is this server
	RelayLeftOut     RelayStanding = "left out"     // a repository lists it, and it may not be followed
	RelayNotFollowed RelayStanding = "not followed" // nothing is wanted of it
	RelayBlocked     RelayStanding = "blocked"      // by [Config].Rules
)

// relay is [SyncManager.ExplainRelay].
func (q *explainer) relay(ctx context.Context, u graspsync.RelayURL) (RelayExplanation, error) {
	x := RelayExplanation{Now: time.Now(), URL: u}
	err := q.ask(ctx, func(l *loop) { l.explain(&x) })
	if err != nil {
		return RelayExplanation{}, fmt.Errorf("explaining %s: %w", u, err)
	}
	t := q.targeting
	x.Listed, x.Examples = q.index.listing(u)
	switch {
	case t.ours(u):
		x.Is = RelayOurs
	case x.Status != nil:
		x.Is, x.Why = RelayFollowed, x.why()
	case t.blocked(u):
		x.Is, x.Why = RelayBlocked, []string{"whoever runs this server has blocked it"}
	case !q.readable.is():
		x.Is, x.Why = RelayNotFollowed, []string{"what is stored here was not read yet, and nobody is followed before that" + because(q.status().StoreError)}
	case t.unreachable(u) != "":
		x.Is, x.Why = RelayNotFollowed, []string{t.unreachable(u)}
		if x.Listed > 0 {
			x.Is = RelayLeftOut
		}
	case x.Listed > 0 && len(q.status().Relays) < q.cfg.fixed.MaxRelays:
		x.Is, x.Why = RelayLeftOut, []string{fmt.Sprintf(
			"it is taken up within %v of being listed, if it is among the first %d relays of an announcement", q.cfg.Times.BatchWindow, q.cfg.Limits.MaxRelaysPerRepo)}
	case x.Listed > 0:
		x.Is, x.Why = RelayLeftOut, []string{fmt.Sprintf(
			"it found no room: the first %d relays of an announcement count, and %d relays in all", q.cfg.Limits.MaxRelaysPerRepo, q.cfg.fixed.MaxRelays)}
	default:
		x.Is, x.Why = RelayNotFollowed, []string{"no repository of this server lists it, and it is not among the bootstrap relays"}
	}
	if x.Status == nil {
		x.Why = append(x.Why, q.elsewhere(u)...)
	}
	return x, nil
}

// mostElsewhere bounds the relays at one host that are named.
const mostElsewhere = 3

// elsewhere names relays that are followed at the same host and port: with or without encryption, or at another path.
func (q *explainer) elsewhere(u graspsync.RelayURL) (also []string) {
	for _, r := range q.status().Relays {
		if r.URL.HostPort() == u.HostPort() && len(also) < mostElsewhere {
			also = append(also, r.URL.String()+" is followed")
		}
	}
	return also
}

// why is why it is followed.
func (x *RelayExplanation) why() (why []string) {
	if x.Status.Bootstrap {
		why = append(why, "it is a bootstrap relay")
	}
	if x.Status.Repos > 0 {
		why = append(why, fmt.Sprintf("%s it", plural(x.Status.Repos, "repository lists", "repositories list")))
	}
	return why
}

// explain tells what the plan has on a relay.
func (l *loop) explain(x *RelayExplanation) {
	p, ok := l.plan.Detail(x.URL)
	if !ok {
		return
	}
	s := l.overview.relayStatus(p.RelayStatus)
	if snapshot := l.env.snapshot.Load(); snapshot != nil {
		if i := slices.IndexFunc(snapshot.Relays, func(r RelayStatus) bool { return r.URL == x.URL }); i >= 0 {
			s.Synced, s.SyncTime = snapshot.Relays[i].Synced, snapshot.Relays[i].SyncTime
		}
	}
	x.Status = &s
	add := func(n int, what, why string) {
		if n > 0 {
			x.LeftOut = append(x.LeftOut, LeftOut{fmt.Sprintf("%d %s", n, what), why})
		}
	}
	add(p.NoRoom, "filters", "they find no room among the subscriptions that the relay takes")
	add(p.TooLarge, "filters", "each is larger than a message that the relay takes")
	for _, r := range p.Resting[:min(len(p.Resting), mostOmitted)] {
		x.LeftOut = append(x.LeftOut, LeftOut{
			graspsync.Printable(r.Filter), "the relay refuses to have it followed; asked again after " + r.Until.UTC().Format(time.DateTime),
		})
	}
	if st := l.stats[x.URL]; st != nil {
		for _, v := range st.allAside() {
			if len(x.LeftOut) < 2*mostOmitted {
				x.LeftOut = append(x.LeftOut, LeftOut{
					graspsync.Printable(v.Tag + " " + v.Value), "the relay fails with this value; tried again after " + v.Until.UTC().Format(time.DateTime),
				})
			}
		}
	}
	if !p.WaitsSince.IsZero() {
		x.LeftOut = append(x.LeftOut, LeftOut{"the connection", "it waits for its turn to be dialed since " + p.WaitsSince.UTC().Format(time.DateTime)})
	}
}
