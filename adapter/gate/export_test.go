package gate

// Fixed contains values that only tests change.
type Fixed = constants

// Fixed returns the values, for changes.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy of c with other values.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}
