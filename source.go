package graspsync

// Source is the origin of an event. The zero value is a submission by a client.
type Source struct {
	Kind SourceKind
	// Relay is the relay that sent the event, and zero for Direct.
	Relay RelayURL
}

// SourceKind is the kind of a [Source].
type SourceKind uint8

// The kinds of sources.
const (
	// Direct means that a client of this server submitted the event.
	Direct SourceKind = iota
	// Live means that it came on an open subscription to another relay.
	Live
	// CatchUp means that it was fetched as history after a connection was made.
	CatchUp
	// Daily means that it was fetched by the daily comparison of all history.
	Daily
)

func (k SourceKind) String() string {
	return enumName(k, "source", "direct", "live", "catchup", "daily")
}
