// Package grasp makes a khatru relay a GRASP server. It keeps the events of the repositories that list it
// (GRASP-02), serves their git data, accepts pushes that the newest state allows, and serves an event
// only when its git data has arrived (GRASP-01).
//
//	records, err := state.Open("state", state.Config{})
//	...
//	defer records.Close()
//	server, err := grasp.New(ctx, relay, db, identity, grasp.Config{Dir: "git", State: records})
//	...
//	defer server.Close()
//	front := &http.Server{Addr: "127.0.0.1:3334", Handler: server.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
//	go front.ListenAndServe()
//	err = server.Run(ctx)
//
// Events that the relay stored before New was called are served even if their git data is missing.
package grasp
