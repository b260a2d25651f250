package graspsync

import "fmt"

// Verdict is what a Policy (package sync) says of an event.
type Verdict struct {
	Decision Decision
	// Reason for Reject and Later, in the words of an OK message (NIP-01), such as
	// "blocked: not a repository of ours". A constant text: it is logged.
	Reason string
	// Detail is what is particular to this event, for whoever submitted it or asks about it: what
	// was wanted, and what was found. It is not counted. At most [MaxDetail] bytes are kept. With Depend
	// it is told in place of what DependsOn names.
	Detail string
	// DependsOn names what Depend waits for; any one of them is enough to judge
	// again. With Reject it names what would have the event judged anew. At most
	// 10,000 count.
	DependsOn []Dependency
}

// MaxDetail is how much of a [Verdict.Detail] is kept and told, in bytes.
const MaxDetail = 1200

// Message is the Reason with the Detail, one line of printable characters of no more than 1,500
// bytes: what a client hears.
func (v Verdict) Message() string {
	detail := PrintableAtMost(v.Detail, MaxDetail)
	if v.Reason == "" || detail == "" {
		return v.Reason + detail
	}
	return v.Reason + ": " + detail
}

// Decision is the kind of a [Verdict]. The zero Decision is not a valid answer.
type Decision uint8

// The answers of a Policy.
const (
	// Accept: it is saved.
	Accept Decision = iota + 1
	// Hold: the Policy keeps it, durably, until something else is here. It is not
	// saved, and not asked for again.
	Hold
	// Reject: it is not for us.
	Reject
	// Depend: it can't be judged before something that we do not have yet. It
	// waits as long as there is room, and is judged again when that arrives; where
	// there was no room it is then asked for again.
	Depend
	// Later: there is no room for it now. It is judged again every minute or less
	// often, and soon after there was room for another one, as long as it can be kept
	// whole; where only its id is left it is asked for again a few times within a day, and
	// comes with a later daily pass. Meanwhile nobody is asked for it.
	Later
)

// String returns the name in lower case.
func (d Decision) String() string {
	switch d {
	case Accept:
		return "accept"
	case Hold:
		return "hold"
	case Reject:
		return "reject"
	case Depend:
		return "depend"
	case Later:
		return "later"
	}
	return fmt.Sprintf("decision(%d)", uint8(d))
}
