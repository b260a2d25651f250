package wire

// Limits are what only tests set otherwise.
type Limits = limits

// ParseWithin is Parse under other limits.
func ParseWithin(l Limits, data []byte) (Message, error) { return l.parse(data, nil) }
