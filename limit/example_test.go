package limit_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/graspsync/graspsync/limit"
)

// Eight git processes, of which one client address may use two.
func ExampleSlots() {
	processes := limit.NewSlots(8, 2)
	client := limit.Client(netip.MustParseAddr("192.0.2.7"))

	slot, err := processes.Acquire(context.Background(), client, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("a third one:", processes.TryAcquire(client, 1) != nil)
	slot.Release()
	fmt.Println("afterwards:", processes.TryAcquire(client, 1) != nil)
	// Output:
	// a third one: false
	// afterwards: true
}
