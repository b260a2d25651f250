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
	// ErrNotFound means that the server does not have the repository.
	ErrNotFound = upload.ErrNotFound
	// ErrEmpty means that the repository has no refs on the server.
	ErrEmpty = upload.ErrEmpty
	// ErrAuth means that the server wants credentials. The Fetcher has none.
	ErrAuth = upload.ErrAuth
	// ErrFormat means that one repository uses SHA-1 and the other SHA-256.
	ErrFormat = errors.New("repositories have different object formats")
	// ErrSlow means that the server sent less than 1 KiB/s for 30 s.
	ErrSlow = errors.New("server is too slow")
	// ErrIncomplete means that a pack lacks objects that its objects need.
	ErrIncomplete = errors.New("server does not have all that an object needs")
	// ErrUnwanted means that a pack has none of the wanted objects.
	ErrUnwanted = errors.New("server sent nothing that was asked for")
	// ErrDisk means that less than Config.MinFreeDisk is free.
	ErrDisk = errors.New("not enough free disk")
)

// MissingError is wrapped by the error of a fetch if the server does not serve an object.
type MissingError = upload.MissingError

// LimitError is wrapped by the error of a fetch if the server exceeds a limit.
type LimitError = upload.LimitError

// classified wraps an error of package purgatory that tells the kind of the error. A server is broken if the
// error holds for all its repositories. A missing repository, or a redirect to a broken server, does not make it
// broken, because any stranger can have one there.
func classified(err error, from graspsync.CloneURL) error {
	var dns *net.DNSError
	var missing *MissingError
	var limit *LimitError
	var cert *tls.CertificateVerificationError
	var busy *upload.BusyError
	switch {
	case errors.As(err, &busy):
		if at, perr := graspsync.ParseCloneURL(busy.At.String()); perr == nil && at.HostPort() == from.HostPort() {
			return fmt.Errorf("%w: %w", &purgatory.BusyError{After: busy.After}, err)
		}
	case errors.As(err, &missing), errors.Is(err, ErrIncomplete), errors.Is(err, ErrUnwanted), errors.Is(err, ErrNotFound),
		errors.Is(err, ErrEmpty), errors.Is(err, ErrAuth):
		return fmt.Errorf("%w: %w", purgatory.ErrNotServed, err)
	case errors.As(err, &limit):
		return fmt.Errorf("%w: %w", purgatory.ErrLimit, err)
	case elsewhere(err, from):
	case errors.As(err, &dns) && dns.IsNotFound, errors.As(err, &cert),
		errors.Is(err, egress.ErrAddress), errors.Is(err, egress.ErrOwn), errors.Is(err, egress.ErrPlaintext):
		return fmt.Errorf("%w: %w", purgatory.ErrBroken, err)
	}
	return err
}

// elsewhere reports whether a request failed at another server than it was made to.
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
