package graspsync

// Source is the origin of an event. The zero value is a submission by a client.
type Source struct {
	Kind  SourceKind
	Relay RelayURL // zero for Direct
}

// SourceKind is the kind of a [Source].
type SourceKind uint8

// The kinds of sources.
const (
	Direct  SourceKind = iota // submitted by a client of this server
	Live                      // came on an open subscription
	CatchUp                   // fetched as history after a connection was made
	Daily                     // fetched by the daily comparison of all history
)

func (k SourceKind) String() string {
	return enumName(k, "source", "direct", "live", "catchup", "daily")
}
