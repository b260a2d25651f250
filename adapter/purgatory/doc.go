// Package purgatoryadapter joins sync and purgatory, which do not know each other:
// events that the policy accepts and whose git data is missing are held, and served
// once it is here.
//
//	policy := purgatoryadapter.NewPolicy(relaysync.NewGRASPPolicy(identity))
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{
//		GateDirect: true, Sync: policy.Configure(relaysync.Config{}),
//	})
//	host := purgatoryadapter.Host{
//		Store: s.Store(), Release: s.Release, Held: s.Held, Removed: s.Removed, Postponed: s.Postponed,
//		Lists: policy.Lists,
//	}
//	p, err := purgatory.Open(ctx, host.Relay(), repos, fetcher, kept, purgatory.Config{Observe: host.Observe})
//	policy.Join(p)
//	relay.OnEventSaved = append(relay.OnEventSaved, func(_ context.Context, e *nostr.Event) {
//		if ev, err := graspsync.ParseEvent(e); err == nil {
//			p.Arrived(ev)
//		}
//	})
//	relay.DeleteEvent = append(relay.DeleteEvent, func(_ context.Context, e *nostr.Event) error {
//		if ev, err := graspsync.ParseEvent(e); err == nil {
//			p.Departed(ev)
//		}
//		return nil
//	})
//	go p.Run(ctx)
//	go s.Run(ctx)
//
// A relay with a Store of its own and without such hooks gives the SyncManager [Policy.Store] of it instead, and
// stores in that what clients submit.
//
// [Policy] asks an inner policy first, and purgatory about announcements, states, pull
// requests and updates of these that it accepts. Before both of them package khatruadapter
// asks the hooks of the relay. [Host] is the relay as purgatory sees
// it. [Authority] says what may be pushed, for package gitserve.
package purgatoryadapter
