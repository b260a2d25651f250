package wstransport

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/graspsync/graspsync"
)

// Reasons that end a connection, besides the network, the relay and the caller.
var (
	errSilent     = errors.New("relay is silent: no answer to a ping")
	errNotRead    = errors.New("relay does not read: write timed out")
	errStalled    = errors.New("relay stalls within a message")
	errMalformed  = errors.New("relay sends malformed messages only")
	errFlood      = errors.New("relay sends pings without end")
	errEmpty      = errors.New("relay sends frames with nothing in them")
	errClosedByUs = errors.New("closed by us")
)

// StatusError is the error of a relay that answered the upgrade with another status than 101.
type StatusError struct {
	Status int
	// After is the header Retry-After, at most a day. It is 0 if the header is missing or invalid.
	After time.Duration
}

// RetryAfter returns the time after which the relay may be dialed again.
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// Error returns the status as text.
func (e *StatusError) Error() string {
	return fmt.Sprintf("relay answered the upgrade with status %d %s", e.Status, http.StatusText(e.Status))
}

func statusError(resp *http.Response) *StatusError {
	return &StatusError{
		Status: resp.StatusCode,
		After:  retryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
}

// retryAfter reads the header of that name, which is a number of seconds or a date.
func retryAfter(value string, now time.Time) time.Duration {
	const longest = 24 * time.Hour
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(longest/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(0, at.Sub(now)), longest)
	}
	return 0
}

// printableError shows at most 300 printable bytes of an error, because some errors quote the relay.
type printableError struct {
	text string
	err  error
}

func (e *printableError) Error() string { return e.text }

func (e *printableError) Unwrap() error { return e.err }

func printable(err error) error {
	return &printableError{graspsync.Printable(err.Error()), err}
}

func readError(err error) error {
	if websocket.CloseStatus(err) != -1 {
		return fmt.Errorf("closed by the relay: %w", err)
	}
	return fmt.Errorf("reading: %w", err)
}
