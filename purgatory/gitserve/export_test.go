package gitserve

import "github.com/graspsync/graspsync"

// Fixed is what only tests set otherwise.
type Fixed = numbers

// Fixed returns it, to be changed.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy that has it.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}

// mark and marked are where these files are unless names are plain.
func mark(ref graspsync.RepoRef) string { return new(layout).mark(ref) }

func marked(with string, ref graspsync.RepoRef) string { return new(layout).marked(with, ref) }
