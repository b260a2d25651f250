package graspsync_test

import (
	"fmt"

	"github.com/graspsync/graspsync"
)

func ExampleParseURL() {
	for _, s := range []string{"relay.example.com", "WSS://Relay.example.com:443/", "ws://127.1"} {
		u, err := graspsync.ParseURL(s, graspsync.RelaySchemes)
		fmt.Println(u, err)
	}
	// Output:
	// wss://relay.example.com <nil>
	// wss://relay.example.com <nil>
	//  unusable URL: host "127.1"
}
