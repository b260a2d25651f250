// Package control is what whoever runs a server has it do while it runs: block and allow, purge and remove, have relays
// and git data tried again, follow a relay in any case, change how the server describes itself, read another file of rules.
//
//	server.Control("npub1...").Block(ctx, subject, "spam") // of adapter/grasp, or adapter/nostrlib/grasp
//
// Whoever puts the parts together without these makes a [Control] of them:
//
//	cfg, network = control.Enforce(book, cfg, network) // before the parts are made of these
//	...
//	commands, err := control.New(control.Config{Rules: book, Sync: manager, ...})
//
// A Control is in somebody's hands, whom an audit log has with what they did ([Control.By]). It is an
// [admin.Operator]: behind package admin it is NIP-86. An [Explainer] says of what is not here, or not served, which
// rule keeps it out, and which command lifts that.
package control
