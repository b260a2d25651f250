// Package statuspage shows the state of a server to people: relays, repositories, events that wait
// for git data, progress and problems. Programs use the metrics and the Status of each
// part.
//
//	page, err := statuspage.New(statuspage.Config{Name: "grasp.example.com", Sync: server.Sync().Manager(), Purgatory: server.Purgatory()})
//	mux.Handle("/", page)
//
// The page has no scripts. The overview reloads itself every 10 s. The page changes nothing and has
// no password, so serve it only to operators, for example on loopback. Below a path it needs an
// [http.StripPrefix] and a trailing slash.
//
// Without viewers the page costs nothing. Views of one second share a snapshot.
// Text of strangers is escaped, reduced to one line of printable characters, and isolated in
// direction.
package statuspage
