package staged

// Ordered is how many names are kept in the order of their times.
func (b *Book) Ordered() int { return len(b.order) }
