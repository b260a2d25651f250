// Package statuspage shows what a server does: its relays and repositories, what waits for git data,
// how far it has come and how fast, and what needs a look. It is an [http.Handler] for people; what
// programs want is in the metrics and in the Status of each part.
//
//	page, err := statuspage.New(statuspage.Config{Name: "grasp.example.com", Sync: server.Sync(), Purgatory: server.Purgatory()})
//	...
//	go page.Run(ctx) // what the plots show from before somebody looked
//	mux.Handle("/", page)
//
// It works without JavaScript; with it the page follows by server-sent events. It has nothing that
// changes anything, and asks for no password: mount it where only operators come, such as on an
// address of this machine. Below a path it needs an [http.StripPrefix], and the slash at its end.
//
// What it costs: while nobody looks nothing but one Status a minute, if Run is called. While somebody
// does, there is one snapshot a second for all who do. Who does not read is cut off. Nothing that
// strangers wrote reaches a page but as text: escaped, one line of printable characters, and with its
// direction kept to itself.
package statuspage
