//go:build !unix

package cputime

import "time"

// Used is not known here.
func Used() time.Duration { return 0 }

// Children is not known here.
func Children() time.Duration { return 0 }
