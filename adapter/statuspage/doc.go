// Package statuspage shows the state of a server: relays, repositories, git data and problems.
//
//	page, err := statuspage.New(statuspage.Config{Sync: server.Sync().Manager(), Purgatory: server.Purgatory(), Explain: server.Explain})
//	mux.Handle("/", page)
//
// The page has no scripts and no password, so serve it only to operators. Below a path it needs an
// [http.StripPrefix] and a trailing slash. Text of strangers is escaped, one line of printable
// characters, and isolated in direction.
package statuspage
