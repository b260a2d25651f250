// Package purgatoryadapter connects package sync with package purgatory.
//
//	policy := purgatoryadapter.NewPolicy(relaysync.NewGRASPPolicy(identity))
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{
//		ApplyPolicyToClients: true, Sync: policy.Configure(relaysync.Config{}),
//	})
//	host := purgatoryadapter.Host{
//		Store: s.Store(), Release: s.Release, Held: s.Manager().NotifyHeld, Removed: s.Manager().NotifyRemoved,
//		Lists: policy.Lists,
//	}
//	p, err := purgatory.Open(ctx, host.Relay(), repos, git, git, kept, purgatory.Config{Observe: host.Observe})
//	policy.Join(p)
//	relay.OnEventSaved = append(relay.OnEventSaved, func(_ context.Context, e *nostr.Event) {
//		if ev, err := graspsync.ParseEvent(e); err == nil {
//			p.NotifyStored(ev)
//		}
//	})
//	relay.DeleteEvent = append(relay.DeleteEvent, func(_ context.Context, e *nostr.Event) error {
//		if ev, err := graspsync.ParseEvent(e); err == nil {
//			p.NotifySuperseded(ev)
//		}
//		return nil
//	})
//	go p.Run(ctx)
//	go s.Run(ctx)
//
// A relay without such hooks uses [Policy.Store] for the SyncManager and for events of clients.
package purgatoryadapter
