package graspsync

// Verdict is the answer of a Policy (package sync) to one event.
type Verdict struct {
	Decision Decision
	// Reason of Reject and Later as an OK message (NIP-01). It must be a constant, because it is
	// counted.
	Reason string
	// Detail describes the expected and the actual value, for the author and the operator. At most
	// [MaxDetail] bytes are kept. With Depend it is shown instead of DependsOn.
	Detail string
	// DependsOn lists the dependencies of Depend, at most 10,000. The event is judged again when
	// any of them is fulfilled. A rejected event may list dependencies too.
	DependsOn []Dependency
}

// MaxDetail is the maximum length of a [Verdict.Detail], in bytes.
const MaxDetail = 1200

// Message returns Reason and Detail for a client, one printable line of at most 1,500 bytes.
func (v Verdict) Message() string {
	detail := PrintableAtMost(v.Detail, MaxDetail)
	if v.Reason == "" || detail == "" {
		return v.Reason + detail
	}
	return v.Reason + ": " + detail
}

// Decision is the kind of a [Verdict]. The zero Decision is not valid.
type Decision uint8

// The decisions of a Policy.
const (
	Accept Decision = iota + 1 // the event is saved
	Hold                       // the Policy keeps the event durably until its data has arrived
	Reject                     // this server does not store the event
	// Depend means that the event waits until one of DependsOn is fulfilled, and is judged again
	// then. If it was evicted, it is requested again.
	Depend
	// Later means that there is no room for the event now. It waits, and is judged again each minute
	// or less often. If it was evicted, its id is requested again within a day.
	Later
)

func (d Decision) String() string {
	return enumName(d, "decision", "", "accept", "hold", "reject", "depend", "later")
}
