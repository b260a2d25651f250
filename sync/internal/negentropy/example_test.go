package negentropy_test

import (
	"fmt"

	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

func Example() {
	item := func(at uint64, first byte) negentropy.Item {
		return negentropy.Item{CreatedAt: at, ID: [32]byte{first}}
	}
	ours := negentropy.NewSet([]negentropy.Item{item(100, 0xaa), item(200, 0xbb)})
	theirs := negentropy.NewSet([]negentropy.Item{item(100, 0xaa), item(300, 0xcc)})

	session := negentropy.NewSession(ours, negentropy.Limits{})
	msg, err := session.Open()
	for done := false; err == nil && !done; {
		var reply []byte
		if reply, err = negentropy.Answer(theirs, msg, 0); err == nil {
			msg, done, err = session.Step(reply)
		}
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, id := range session.Need() {
		fmt.Printf("to fetch: %x...\n", id[:2])
	}
	for _, id := range session.Have() {
		fmt.Printf("only here: %x...\n", id[:2])
	}
	// Output:
	// to fetch: cc00...
	// only here: bb00...
}
