package state

// NewBoundedMemory returns an empty Memory with another limit.
func NewBoundedMemory(maxBytes int) *Memory { return newMemory(maxBytes) }
