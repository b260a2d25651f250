package remoteadapter

import "time"

// With returns a copy with other constants; 0 keeps the default.
func (c Config) With(timeout time.Duration, pageLimit int) Config {
	c.fixed = constants{timeout, pageLimit}
	return c
}
