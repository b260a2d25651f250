package session

import (
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// Action is something for the caller to do.
type Action interface{ action() }

// The actions, to be carried out in the order in which they were returned.
type (
	// Send sends a request.
	Send struct{ Request wire.Request }
	// Deliver passes an event on that answers what was asked. It was not verified.
	Deliver struct {
		Event graspsync.Event
		// Known: it needs no second look, and nothing else was read of it: see [wire.Message].
		Known bool `json:",omitempty"`
		Size  int
		Batch plan.BatchID // 0 for a live event
		Kind  plan.Kind    // of the batch
		// Gap: a live subscription that was open when the event was made should
		// have brought it.
		Gap bool
	}
	// LoadSet asks for what we have for a filter, which may be one of ids; the answer goes to SetLoaded.
	LoadSet struct {
		Query  QueryID
		Filter nostr.Filter
	}
	// Missing asks which of some ids we need; the answer goes to Checked.
	Missing struct {
		Query QueryID
		Batch plan.BatchID `json:"-"` // that the query is of
		IDs   []graspsync.EventID
		// More: the query has others, and need not wait for those that somebody else is being asked for.
		More bool `json:",omitempty"`
	}
	// Done reports the end of a batch. Cursors says how far each query got.
	Done struct {
		Batch   plan.BatchID
		Result  plan.Result
		Cursors []plan.Cursor
		Report  Report
	}
	// LiveClosed reports that the relay ended, or refused, a live subscription.
	LiveClosed struct {
		OpenAt int64 `json:",omitempty"` // Unix time of its EOSE, 0 if it was refused at the opening
		Live   plan.LiveID
		Reason string
		Why    wire.Refusal // what can be done about it was done
		// GaveWay: the relay did not. It came last, and something else needs its place.
		GaveWay bool `json:",omitempty"`
	}
	// RateLimited reports that nothing new is asked for until then.
	RateLimited struct {
		Until  time.Time
		For    time.Duration
		Reason string
	}
	// Learned reports what is to be believed of the relay from now on.
	Learned struct {
		Kind   relaylimits.Kind
		Value  int
		Reason string // a relay may have written it
		// Wrong: what it offers does not work, which is no refusal that may end any time.
		Wrong bool `json:",omitempty"`
	}
	// Taken reports that the relay answered a form over which it once hung up.
	Taken struct{ relaylimits.Form }
	// SetAside reports a value that makes the relay refuse every request that has
	// it. It is left out from now on.
	SetAside struct{ relaylimits.Value }
	// Authenticate asks for an answer to a challenge; it goes to Signed.
	Authenticate struct{ Challenge string }
	// Notice reports a NOTICE that means nothing to us.
	Notice struct{ Text string }
	// Hangup ends the connection: nothing that is asked on it is answered. Hung: nothing is said
	// to it at all.
	Hangup struct {
		Reason string
		Hung   bool
	}
	// Strike reports a proof of hostility; Last means that it was one too many.
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
func (SetAside) action()     {}
func (Taken) action()        {}
func (Authenticate) action() {}
func (Notice) action()       {}
func (Hangup) action()       {}
func (Strike) action()       {}

// Report is what a batch did.
type Report struct {
	Method  Method
	Events  int // received, duplicates included
	Pages   int
	Missing int // ids that the relay announced and did not serve
	Seconds int // seconds that hold more events than a page
	// Reconciled is how many queries were compared by NIP-77, and Lacking the ids of
	// what we have and the relay lacks for them, at most [MaxLacking], of the
	// LackingAll there are. An id may be there once for each query.
	Reconciled int
	LackingAll int
	Lacking    []graspsync.EventID
	// Unserved are ids that the relay announced and did not serve, at most 1,000.
	Unserved []graspsync.EventID
	// Disproved: NIP-77 did not show what the relay has.
	Disproved bool `json:",omitempty"`
	// PageSize is the largest page the relay ever gave, as far as is known by now.
	PageSize int
	Err      string // why it failed; a relay may have written it
	// Late: it failed only since its time was over. Events had come.
	Late bool
}

// MaxLacking bounds the ids in [Report.Lacking].
const MaxLacking = 1_000

// compared takes in what a reconciliation found the relay to lack.
func (r *Report) compared(lacking [][32]byte) {
	r.Reconciled++
	r.LackingAll += len(lacking)
	for _, id := range lacking[:min(len(lacking), MaxLacking-len(r.Lacking))] {
		r.Lacking = append(r.Lacking, graspsync.EventID(id))
	}
}

// Method is how history was fetched.
type Method uint8

// The methods; a batch of several queries may have used both.
const (
	Pages  Method = 1 << iota // REQ, page by page
	Negent                    // NIP-77
)

// String names the method as NIPs do.
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

// QueryID names a query between a LoadSet or Missing and its answer.
type QueryID uint64
