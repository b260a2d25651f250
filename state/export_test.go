package state

// NewBoundedMemory returns an empty Memory with another bound.
func NewBoundedMemory(maxBytes int) *Memory { return newMemory(maxBytes) }
