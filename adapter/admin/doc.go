// Package admin lets the owners of a server send commands by NIP-86, and keeps an audit log.
//
//	handler, err := admin.New(operator, admin.Config{Owners: owners, Identity: identity, State: records})
//	front.Handler = handler.Middleware(front.Handler) // or at an address that only owners reach
//
// Each command of an [Operator] is a method, and so are methods of NIP-86 with an equivalent command.
//
// A request needs an Authorization by an owner: an event of kind 27235 for this URL, HTTP method and
// body, at most a minute old, accepted once.
package admin
