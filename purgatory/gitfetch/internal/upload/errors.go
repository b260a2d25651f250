package upload

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

var (
	// ErrNotFound reports that the repository does not exist.
	ErrNotFound = fmt.Errorf("%w: no such repository", purgatory.ErrNotServed)
	// ErrEmpty reports that the repository has no refs.
	ErrEmpty = fmt.Errorf("%w: the repository is empty", purgatory.ErrNotServed)
	// ErrAuth reports that the server requires credentials. The client has none.
	ErrAuth = fmt.Errorf("%w: credentials are required", purgatory.ErrNotServed)
	// ErrStatus reports another status than 200.
	ErrStatus = errors.New("server refused")
	// ErrRemote reports an error message of the server.
	ErrRemote = errors.New("server reports an error")
)

// LimitError reports that a server exceeded a limit.
type LimitError struct {
	Limit string // such as "pack bytes"
	Most  int64
}

func (e *LimitError) Error() string { return fmt.Sprintf("%s: more than %d", e.Limit, e.Most) }

// Unwrap returns [purgatory.ErrLimit].
func (e *LimitError) Unwrap() error { return purgatory.ErrLimit }

// BusyError reports that a server is overloaded, and for how long.
type BusyError struct {
	Status int
	After  time.Duration
	At     *url.URL // URL of the answer, possibly after a redirect
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: status %d, again after %v", ErrStatus, e.Status, e.After)
}

func (e *BusyError) Unwrap() error { return ErrStatus }

func busy(resp *http.Response, now time.Time) (error, bool) {
	text := strings.TrimSpace(resp.Header.Get("Retry-After"))
	var after time.Duration
	if n, err := strconv.ParseUint(text, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // out of range: the maximum
		after = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		after = max(0, at.Sub(now))
	} else if resp.StatusCode != http.StatusTooManyRequests {
		return nil, false
	}
	return &BusyError{Status: resp.StatusCode, After: after, At: resp.Request.URL}, true
}

// MissingError reports that a server does not serve an object.
type MissingError struct{ ID nip34.ObjectID }

func (e *MissingError) Error() string { return "server does not serve object " + e.ID.String() }

// Unwrap returns [purgatory.ErrNotServed].
func (e *MissingError) Unwrap() error { return purgatory.ErrNotServed }

// refusedBy returns the error of an ERR line, or nil.
func refusedBy(line string) error {
	text, ok := strings.CutPrefix(line, "ERR ")
	if !ok {
		return nil
	}
	return remoteError(text)
}

func remoteError(text string) error {
	text = strings.TrimSpace(text)
	for _, phrase := range []string{"not our ref ", "unadvertised object "} {
		if _, rest, ok := strings.Cut(text, phrase); ok {
			word, _, _ := strings.Cut(rest, " ")
			if id, err := nip34.ParseObjectID(strings.TrimSpace(word)); err == nil {
				return &MissingError{id}
			}
		}
	}
	return fmt.Errorf("%w: %s", ErrRemote, graspsync.Printable(text))
}
