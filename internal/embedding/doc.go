// Package embedding has what is the same whatever relay graspsync is embedded in: what is known of
// the events that a relay has stored, and of the disk.
package embedding

import "fmt"

// Protect turns a panic of the embedder's code into an error.
func Protect(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	f()
	return nil
}
