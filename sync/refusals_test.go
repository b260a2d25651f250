package sync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// manyRepos is a relay with many repositories of one owner.
type manyRepos struct {
	*rig
	relay  *relaytest.Relay
	owner  *relaytest.Key
	names  []string
	issues []*nostr.Event
}

// crowded starts a manager with n repositories on a relay, each with an issue and a comment there.
func crowded(t *testing.T, b relaytest.Behavior, cfg relaysync.Config, n int, more ...string) *manyRepos {
	t.Helper()
	net := relaytest.NewNetwork()
	c := &manyRepos{relay: net.Add("wss://a.example", b), owner: relaytest.NewCheapKey("owner")}
	c.rig = &rig{t: t, store: memstore.New()}
	for i := range n {
		c.names = append(c.names, fmt.Sprint("repo", i))
	}
	c.names = append(c.names, more...)
	for i, name := range c.names {
		c.save(c.owner.Hosted(at(24*time.Hour), name, us, "a.example"))
		issue := c.owner.Issue(at(time.Duration(i+1)*time.Hour), c.owner.Ref(name), "x")
		c.issues = append(c.issues, issue, c.owner.Comment(at(time.Duration(i+1)*time.Hour-time.Minute), issue, "y"))
	}
	c.relay.Publish(c.issues...)
	c.rig = start(t, net, c.store, cfg)
	return c
}

// lacks names the events that are not stored.
func (c *manyRepos) lacks(events []*nostr.Event) (out []string) {
	for _, ev := range events {
		if !c.has(ev) {
			out = append(out, fmt.Sprint(ev.Kind, " ", ev.Tags))
		}
	}
	return out
}

// violations returns the violated rules of behavior, except those that a relay forces.
func (c *manyRepos) violations() (out []string) {
	for _, v := range c.relay.Violations() {
		switch v.Kind {
		case relaytest.ViolationManySubs, relaytest.ViolationMessageSize:
		default:
			out = append(out, v.String())
		}
	}
	return out
}

// refusing are relays that refuse the usual requests and serve everything in another form.
var refusing = map[string]relaytest.Behavior{
	"wants kinds":                {RefuseKindless: true},
	"wants kinds, by notice":     {RefuseKindless: true, RefuseByNotice: true},
	"no notes of anybody":        {Software: relaytest.SoftwareKhatru, RefuseKindless: true},
	"SQL database":               {RefuseTagValuesOver: 10},
	"SQL database, three values": {RefuseTagValuesOver: 3},
	"four filters":               {MaxFilters: 4},
	"four filters, by notice":    {MaxFilters: 4, RefuseByNotice: true},
	"eight subscriptions":        {MaxSubs: 8},
	"all of it":                  {MaxFilters: 6, RefuseTagValuesOver: 10, RefuseKindless: true},
	"too many, in unknown words": {ClosedReason: manyValues},
	"kinds, in unknown words":    {ClosedReason: wantsKinds},
	"message length unsaid":      {MaxMessage: 6000},
	"slow rate":                  {RateLimit: 10},
	"slow rate, by notice":       {RateLimit: 10, RateLimitNotice: true},
	"authentication":             {Auth: relaytest.AuthRequired},
	"authentication offered":     {Auth: relaytest.AuthOffered},
}

func manyValues(r wire.Request) string {
	for _, f := range r.Filters {
		for _, values := range f.Tags {
			if len(values) > 7 {
				return "invalid: this is more than we like"
			}
		}
	}
	return ""
}

func wantsKinds(r wire.Request) string {
	for _, f := range r.Filters {
		if f.Kinds == nil && f.IDs == nil && f.Authors == nil {
			return "invalid: say what you want"
		}
	}
	return ""
}

// All events of a relay that refuses the usual requests are stored in the end, and it is followed
// live.
func TestRefusingRelaysGiveEverything(t *testing.T) {
	racetest.Amounts(t)
	for name, b := range refusing {
		for _, neg := range []relaytest.NegMode{relaytest.NegOn, relaytest.NegNotice} {
			b.Negentropy = neg
			t.Run(name+", NIP-77 "+neg.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					c := crowded(t, b, relaysync.Config{Signer: newSigner()}, 60)
					defer c.stop()
					after(6 * time.Hour)
					require.Empty(t, c.lacks(c.issues))
					require.Empty(t, c.violations())
					live := c.owner.Issue(at(0), c.owner.Ref("repo7"), "live")
					reply := c.owner.Comment(at(0), c.issues[20], "live")
					c.relay.Publish(live, reply)
					after(time.Minute)
					require.Empty(t, c.lacks([]*nostr.Event{live, reply}), "%+v", c.rig.relay("wss://a.example"))
					s := c.rig.relay("wss://a.example")
					require.Equal(t, s.Wanted, s.Confirmed)
				})
			})
		}
	}
}

// One value that a relay refuses excluded the 99 others of its filter.
func TestPoisonValue(t *testing.T) {
	racetest.Amounts(t)
	poison := strings.Repeat("p", 120)
	for _, b := range []relaytest.Behavior{
		{RefuseValueOver: 150},
		{RefuseValueOver: 150, RefuseByNotice: true},
		{RefuseValueOver: 150, Negentropy: relaytest.NegNotice},
	} {
		bubble(t, func(t *testing.T) {
			c := crowded(t, b, relaysync.Config{}, 99, poison)
			defer c.stop()
			after(2 * time.Minute)
			last := c.issues[len(c.issues)-2:]
			require.Empty(t, c.lacks(c.issues[:len(c.issues)-2]))
			if b.Negentropy == relaytest.NegNotice {
				require.NotEmpty(t, c.lacks(last), "the relay can't be asked for it")
			}
			// Its two addresses, and the first address under a, A and q.
			require.Equal(t, uint64(4), c.manager.Status().Events.Dropped["bad_value"])
			require.Less(t, len(c.relay.Requests(wire.TypeReq)), 150)
			live := c.owner.Issue(at(0), c.owner.Ref("repo7"), "live")
			c.relay.Publish(live)
			after(time.Minute)
			require.True(t, c.has(live))
			require.Empty(t, c.violations())

			// The value is remembered.
			before := len(c.relay.Requests(wire.TypeReq))
			c.relay.Cut()
			after(5 * time.Minute)
			for _, seen := range c.relay.Requests(wire.TypeReq)[before:] {
				for _, f := range seen.Request.Filters {
					require.NotContains(t, f.Tags["a"], c.owner.Ref(poison).String())
				}
			}
			// The value is tried again later, because the relay may have improved.
			c.relay.Update(func(b *relaytest.Behavior) { b.RefuseValueOver = 0 })
			after(50 * time.Hour)
			require.Empty(t, c.lacks(c.issues))
		})
	}
}

// Learned limits expire: a relay that has improved is used accordingly on the same connection.
func TestLearnedExpires(t *testing.T) {
	racetest.Amounts(t)
	for name, b := range map[string]relaytest.Behavior{
		"kinds":   {RefuseKindless: true},
		"values":  {RefuseTagValuesOver: 10},
		"filters": {MaxFilters: 2},
		"subs":    {MaxSubs: 4},
		"NIP-77":  {Negentropy: relaytest.NegNotice},
		"all":     {RefuseKindless: true, RefuseTagValuesOver: 10, MaxFilters: 2, Negentropy: relaytest.NegNotice},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := crowded(t, b, relaysync.Config{}, 30)
				defer c.stop()
				after(time.Hour)
				require.Empty(t, c.lacks(c.issues))
				c.relay.Update(func(b *relaytest.Behavior) { *b = relaytest.Behavior{} })
				after(30 * time.Hour)
				before := len(c.relay.Requests())
				after(25 * time.Hour) // a daily pass
				reconciled := 0
				for _, seen := range c.relay.Requests()[before:] {
					if seen.Request.Type == wire.TypeNegOpen {
						reconciled++
						require.Empty(t, without(seen.Request.Filters, 5, 30617))
					}
				}
				// Layer 1, then under a, A, q and of kind 5, then under e, E, q.
				require.GreaterOrEqual(t, reconciled, 8)
				require.Less(t, reconciled, 30)
				require.Len(t, c.relay.Dials(), 1)
			})
		})
	}
}

// without returns the filters, except those whose kinds begin with these kinds.
func without(fs []nostr.Filter, kinds ...int) (out []nostr.Filter) {
	for _, f := range fs {
		if len(f.Kinds) > 2 || len(f.Kinds) > 0 && f.Kinds[0] != kinds[0] && f.Kinds[0] != kinds[1] {
			out = append(out, f)
		}
	}
	return out
}
