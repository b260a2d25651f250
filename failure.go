package graspsync

import "time"

// Failure is a dependency of a part, such as its store, whose calls fail: the last one did.
type Failure struct {
	Of    string    `json:"of"`    // the dependency, and the operation if they fail apart
	Error string    `json:"error"` // of the last call, one line of printable text
	Count uint64    `json:"count"` // failed calls in a row
	Since time.Time `json:"since"` // of the first of these
}
