package memory

// fate is the treatment of a stored value.
type fate int

const (
	used    fate = iota
	left         // kept, because a later version may have written it
	gone         // removed as obsolete
	dropped      // removed, counted and logged as invalid
)
