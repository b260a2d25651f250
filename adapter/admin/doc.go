// Package admin lets whoever owns a server command it while it runs: JSON-RPC over HTTP as NIP-86 has
// it, each request signed as NIP-98 has it, and a log of what was commanded.
//
//	handler, err := admin.New(operator, admin.Config{Owners: owners, Identity: identity, State: records})
//	front.Handler = handler.Before(front.Handler) // or mounted where only owners get to
//
// An [Operator] carries out the commands: that of a GRASP server is the Control of package control. The
// methods of NIP-86 that it has an equivalent for are served as such, banpubkey and the like; every
// command is a method of its own name as well, with its arguments as params.
//
// A request is obeyed if its Authorization is an event of kind 27235 by one of the owners, signed for
// exactly this URL, this method and this body, at most a minute ago by our clock, after we were
// started and later than what was obeyed before that, and never before. What is wrong with one is
// said; a client that is wrong too often is told to wait, and an owner beside it is heard.
package admin
