package khatruadapter_test

import (
	"context"
	"fmt"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"

	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
	"github.com/graspsync/graspsync/nip34"
)

// Make an existing relay with its backend sync.
func Example() {
	relay, db := khatru.NewRelay(), &slicestore.SliceStore{}
	if err := db.Init(); err != nil {
		fmt.Println(err)
	}

	identity, err := nip34.ParseIdentity("grasp.example.com")
	if err != nil {
		fmt.Println(err)
	}
	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{ApplyPolicyToClients: true})
	if err != nil {
		fmt.Println(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	// http.ListenAndServe(":7334", relay)

	cancel()
	fmt.Println(<-done)
	// Output: context canceled
}
