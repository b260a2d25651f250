// Package grasp makes a khatru relay a GRASP server: one that keeps the events of the
// repositories that list it (GRASP-02), serves their git data, takes pushes that the
// newest state event allows, and serves no event before its data (GRASP-01).
//
//	server, err := grasp.New(ctx, relay, db, identity, grasp.Config{Dir: "git", State: records})
//	...
//	defer server.Close()
//	front := &http.Server{Addr: "127.0.0.1:3334", Handler: server.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
//	go front.ListenAndServe()
//	err = server.Run(ctx)
//
// What the relay has stored already is served as it is, also before its git data is here.
//
// It puts the parts together, and is all there is to say about how they fit: package
// sync follows other relays, purgatory holds what waits for git data, gitfetch fetches
// and gitserve serves that. Who needs only some of them, or another relay than khatru,
// takes the parts.
package grasp
