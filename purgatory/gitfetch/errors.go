package gitfetch

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch/internal/upload"
)

// Errors of a fetch.
var (
	// ErrNotFound reports that the server does not have the repository.
	ErrNotFound = upload.ErrNotFound
	// ErrEmpty reports that the repository on the server has no refs.
	ErrEmpty = upload.ErrEmpty
	// ErrAuth reports that the server requires credentials. The Fetcher has none.
	ErrAuth = upload.ErrAuth
	// ErrFormat reports that only one of the repositories uses SHA-256.
	ErrFormat = errors.New("repositories have different object formats")
	// ErrSlow reports that the server sent less than 1 KiB/s for 30 s.
	ErrSlow = errors.New("server is too slow")
	// ErrIncomplete reports that a pack lacks objects that its objects need.
	ErrIncomplete = fmt.Errorf("%w: objects that a wanted object needs", purgatory.ErrNotServed)
	// ErrUnwanted reports that a pack contains no wanted object.
	ErrUnwanted = fmt.Errorf("%w: it sent no wanted object", purgatory.ErrNotServed)
	// ErrDisk reports that less than Config.MinFreeDisk is free.
	ErrDisk = errors.New("not enough free disk")
)

// MissingError reports that the server does not serve an object.
type MissingError = upload.MissingError

// LimitError reports that the server exceeded a limit.
type LimitError = upload.LimitError

// classified wraps an error of package purgatory that classifies err. A missing repository, or a
// redirect to a broken server, does not make a server unusable, because any user can create one.
func classified(err error, from graspsync.CloneURL) error {
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	var busy *upload.BusyError
	switch {
	case errors.As(err, &busy):
		if at, perr := graspsync.ParseCloneURL(busy.At.String()); perr == nil && at.HostPort() == from.HostPort() {
			return fmt.Errorf("%w: %w", &purgatory.BusyError{After: busy.After}, err)
		}
	case errors.Is(err, purgatory.ErrNotServed), errors.Is(err, purgatory.ErrLimit), elsewhere(err, from):
	case errors.As(err, &dns) && dns.IsNotFound, errors.As(err, &cert),
		errors.Is(err, egress.ErrAddress), errors.Is(err, egress.ErrOwn), errors.Is(err, egress.ErrPlaintext):
		return fmt.Errorf("%w: %w", purgatory.ErrServerUnusable, err)
	}
	return err
}

// elsewhere reports whether a request failed at another host, after a redirect.
func elsewhere(err error, from graspsync.CloneURL) bool {
	if errors.Is(err, egress.ErrRedirect) {
		return true
	}
	var failed *url.Error
	if !errors.As(err, &failed) {
		return false
	}
	at, err := graspsync.ParseCloneURL(failed.URL)
	return err != nil || at.HostPort() != from.HostPort()
}
