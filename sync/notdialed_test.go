package sync_test

import (
	"time"
)

type later time.Duration

// Error implements error.
func (l later) Error() string { return "address had its share" }

// RetryAfter returns the time until another attempt is allowed.
func (l later) RetryAfter() time.Duration { return time.Duration(l) }
