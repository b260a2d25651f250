//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package filestate

import "io"

// lock does nothing on systems without flock.
func (f osFolder) lock() (io.Closer, error) { return io.NopCloser(nil), nil }
