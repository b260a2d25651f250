package eventstoreadapter

// Fixed is what only tests set otherwise.
type Fixed = constants

// Fixed returns it, to be changed.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy that has it.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}

// Waiting is how much the answers take that were not read to their end, in bytes.
func (s *Store) Waiting() int {
	s.waiting.mu.Lock()
	defer s.waiting.mu.Unlock()
	return s.waiting.bytes
}
