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
)

// Errors that a caller can act upon.
var (
	// ErrNotFound: there is no such repository.
	ErrNotFound = errors.New("no such repository")
	// ErrEmpty: the repository has no refs.
	ErrEmpty = errors.New("the repository is empty there")
	// ErrAuth: the server wants to know who we are. We never say.
	ErrAuth = errors.New("server wants credentials")
	// ErrStatus: it answered with another status than 200.
	ErrStatus = errors.New("server refused")
	// ErrRemote: it said that something went wrong.
	ErrRemote = errors.New("server reports an error")
)

// LimitError is returned when a server goes beyond a limit of ours.
type LimitError struct {
	Limit string // what was limited, such as "pack bytes"
	Most  int64
}

// Error names the limit.
func (e *LimitError) Error() string { return fmt.Sprintf("%s: more than %d", e.Limit, e.Most) }

// BusyError is returned when a server says that it is asked too much, or can't answer now,
// and for how long.
type BusyError struct {
	Status int
	After  time.Duration
	At     *url.URL // who said so: a redirect may have led there
}

// Error says what was answered.
func (e *BusyError) Error() string {
	return fmt.Sprintf("%v: status %d, again after %v", ErrStatus, e.Status, e.After)
}

// Unwrap returns ErrStatus.
func (e *BusyError) Unwrap() error { return ErrStatus }

// busy reads how long a server asks to be left alone; false if it does not. Too many
// requests (429) are that without a time as well.
func busy(resp *http.Response, now time.Time) (error, bool) {
	text := strings.TrimSpace(resp.Header.Get("Retry-After"))
	var after time.Duration
	if n, err := strconv.ParseUint(text, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // then it is as long as can be said
		after = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		after = max(0, at.Sub(now))
	} else if resp.StatusCode != http.StatusTooManyRequests {
		return nil, false
	}
	return &BusyError{Status: resp.StatusCode, After: after, At: resp.Request.URL}, true
}

// MissingError is returned when a server says that it does not serve an object.
type MissingError struct{ ID nip34.ObjectID }

// Error names the object.
func (e *MissingError) Error() string { return "server does not serve object " + e.ID.String() }

// refusedBy reads an error line of a server; nil if it is none. Servers name the
// object that they do not serve in two ways.
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
