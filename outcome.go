package graspsync

// Incoming is an event to be saved in a Store (package sync), with its source.
type Incoming struct {
	Event  Event
	Source Source
}

// Outcome is the answer of a Store to one event.
type Outcome struct {
	Result Result
	// Err is the cause of Refused and Failed, and nil for other results.
	Err error
}

// Result is the kind of an [Outcome].
type Result uint8

// The results of saving an event. The zero Result is not valid.
const (
	// Stored means that the event is new and durable.
	Stored Result = iota + 1
	// Duplicate means that the event was stored before.
	Duplicate
	// Superseded means that a newer version is stored, and this version is not.
	Superseded
	// Deleted means that a stored deletion (NIP-09) covers the event, which is not stored.
	Deleted
	// Refused means that the Store will never store this event.
	Refused
	// Failed means that this attempt failed. A later one may succeed.
	Failed
)

func (r Result) String() string {
	return enumName(r, "result", "", "stored", "duplicate", "superseded", "deleted", "refused", "failed")
}
