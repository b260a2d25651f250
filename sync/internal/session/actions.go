package session

import (
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// Action is an instruction to the caller.
type Action interface{ action() }

// The caller carries actions out in order.
type (
	// Send sends a request.
	Send struct{ Request wire.Request }
	// Deliver passes on an event that matches a request. Its id and signature are not verified.
	Deliver struct {
		Event graspsync.Event
		// Known events were processed before. Only some fields were read, see [wire.Message].
		Known bool `json:",omitempty"`
		Size  int
		Batch plan.BatchID // 0 for a live event
		Kind  plan.Kind
		// Gap reports that an open live subscription did not deliver the event.
		Gap bool
	}
	// LoadSet asks for the set of stored events that match Filter. The answer goes to SetLoaded.
	LoadSet struct {
		Query  QueryID
		Filter nostr.Filter
	}
	// Missing asks which of IDs are not stored. The answer goes to Checked.
	Missing struct {
		Query QueryID
		Batch plan.BatchID `json:"-"`
		IDs   []graspsync.EventID
		// More reports that the query has further ids, so it need not wait for ids that another
		// relay may bring.
		More bool `json:",omitempty"`
	}
	// Done reports the end of a batch.
	Done struct {
		Batch   plan.BatchID
		Result  plan.Result
		Cursors []plan.Cursor
		Report  Report
	}
	// LiveClosed reports that a live subscription ended or was refused.
	LiveClosed struct {
		OpenAt int64 `json:",omitempty"` // Unix time of its EOSE, 0 if it was refused at the opening
		Live   plan.LiveID
		Reason string
		Why    wire.Refusal
	}
	// RateLimited reports that no new request is sent until Until.
	RateLimited struct {
		Until  time.Time
		For    time.Duration
		Reason string
	}
	// Learned reports a limit of the relay that applies from now on.
	Learned struct {
		Kind   relaylimits.Kind
		Value  int
		Reason string // may be remote text
		// Wrong reports that the relay offers NIP-77 and its answers are wrong, which is no
		// refusal.
		Wrong bool `json:",omitempty"`
	}
	// ExcludeValue reports a value that later requests omit.
	ExcludeValue struct{ relaylimits.Value }
	// Authenticate asks for a signed answer, which goes to Signed.
	Authenticate struct{ Challenge string }
	// Notice reports a NOTICE that is not classified.
	Notice struct{ Text string }
	// Hangup ends the connection, because the relay answers nothing.
	Hangup struct{ Reason string }
	// Strike reports a proof of hostility. Last reports that the limit is reached.
	Strike struct {
		Reason string
		Last   bool
	}
)

func (Send) action()         {}
func (Deliver) action()      {}
func (LoadSet) action()      {}
func (Missing) action()      {}
func (Done) action()         {}
func (LiveClosed) action()   {}
func (RateLimited) action()  {}
func (Learned) action()      {}
func (ExcludeValue) action() {}
func (Authenticate) action() {}
func (Notice) action()       {}
func (Hangup) action()       {}
func (Strike) action()       {}

// Report describes the result of a batch.
type Report struct {
	Method    Method
	Events    int // received, duplicates included
	Pages     int
	Missing   int // announced and not served
	Seconds   int // with more events than a page
	Unserved  []graspsync.EventID
	Disproved bool `json:",omitempty"`
	// largest page that the relay returned so far, in events
	PageSize int
	Err      string // reason of a failure, may be remote text
	// Late reports that the batch failed only because of its deadline.
	Late bool
}

// Method is a bit set of ways to fetch history.
type Method uint8

// A batch may use both.
const (
	Pages Method = 1 << iota
	Negent
)

func (m Method) String() string {
	switch m {
	case Pages:
		return "REQ"
	case Negent:
		return "NIP-77"
	case Pages | Negent:
		return "NIP-77+REQ"
	}
	return "-"
}

// QueryID identifies a LoadSet or Missing.
type QueryID uint64
