// Package control executes the operator's commands, and reloads a rules file.
//
//	server.Control().Do(ctx, "npub1...", "block", "author", "npub1...", "spam") // of adapter/grasp, or adapter/nostrlib/grasp
//
// A server of single parts:
//
//	cfg, network = control.Enforce(ruleSet, cfg, network) // before cfg and network are used
//	...
//	commands, err := control.New(control.Config{Rules: ruleSet, Sync: manager, ...})
//
// Package admin serves a Control as NIP-86.
package control
