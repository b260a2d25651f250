package graspsync

// Incoming is an event to be saved in a Store (package sync), with its source.
type Incoming struct {
	Event  Event
	Source Source
}

// Outcome is the answer of a Store to one event.
type Outcome struct {
	Result Result
	Err    error // cause of Refused and Failed
}

// Result is the kind of an [Outcome].
type Result uint8

// The results of saving an event. The zero Result is not valid.
const (
	Stored     Result = iota + 1 // new and durable
	Duplicate                    // was stored before
	Superseded                   // not stored, because a newer version is
	Deleted                      // not stored, because a stored deletion (NIP-09) covers the event
	Refused                      // the Store will never store this event
	Failed                       // a later attempt may succeed
)

func (r Result) String() string {
	return enumName(r, "result", "", "stored", "duplicate", "superseded", "deleted", "refused", "failed")
}
