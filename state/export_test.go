package state

// NewBoundedMemory returns an empty Memory with other bounds.
func NewBoundedMemory(keys int, bytes int64) *Memory {
	return newMemory(memoryLimits{keys: keys, bytes: bytes})
}
