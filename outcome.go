package graspsync

import (
	"fmt"
)

// Incoming is an event on its way into a Store (package sync), with where it came from.
type Incoming struct {
	Event  Event
	Source Source
}

// Outcome says what became of an event when it was to be saved.
type Outcome struct {
	Result Result
	// Err says why, for Refused and Failed.
	Err error
}

// Result is the kind of an [Outcome].
type Result uint8

// What a Store can do with an event. The zero Result is not a valid answer.
const (
	// Stored: it is new here and now durable.
	Stored Result = iota + 1
	// Duplicate: it was here already.
	Duplicate
	// Superseded: a newer version of it is here. It was not stored.
	Superseded
	// Deleted: a deletion that is here covers it. It was not stored.
	Deleted
	// Refused: the store does not want this event, now or later.
	Refused
	// Failed: it could not be stored; the next attempt may succeed.
	Failed
)

// String returns the name of the result in lower case.
func (r Result) String() string {
	switch r {
	case Stored:
		return "stored"
	case Duplicate:
		return "duplicate"
	case Superseded:
		return "superseded"
	case Deleted:
		return "deleted"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	}
	return fmt.Sprintf("result(%d)", uint8(r))
}
