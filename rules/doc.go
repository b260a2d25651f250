// Package rules stores the decisions of a server's operator: blocked relays, authors, repositories
// and events, and relays that are always followed. A [RuleSet] keeps the rules over restarts and
// answers lookups.
//
//	ruleSet, err := rules.Open(ctx, store, rules.File{})
//	subject, err := rules.ParseSubject("author", "npub1...")
//	err = ruleSet.Set(ctx, rules.Rule{Action: rules.Block, Subject: subject, Reason: "spam"})
//
// Use a separate store for the rules and back it up, because lost rules cannot be fetched again
// from the network.
//
// A RuleSet enforces nothing. Set it as Rules of [relaysync.Config] and as Deny of egress.Config, or
// use adapter/grasp or adapter/nostrlib/grasp, which do both. adapter/control provides commands
// that change rules and apply each change immediately. A program without adapter/control notifies
// the SyncManager after each change, and removes stored events of blocked subjects:
//
//	err = manager.RulesChanged(ctx, rules.OnRuleRemoved(subject))
//
// Each subject has at most one rule. A rule that was set while the server ran precedes one of the
// file. A rule for an event precedes one for its repository, and both precede one for an author.
//
// [relaysync.Config]: https://pkg.go.dev/github.com/graspsync/graspsync/sync#Config
package rules
