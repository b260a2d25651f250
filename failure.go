package graspsync

import "time"

// Failure describes a dependency, such as a Store, whose last call failed.
type Failure struct {
	Of    string    `json:"of"`    // the dependency, with the operation if operations are counted separately
	Error string    `json:"error"` // of the last call, one line of printable text
	Count uint64    `json:"count"` // failed calls in a row
	Since time.Time `json:"since"` // of the first failed call
}
