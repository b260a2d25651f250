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

// Errors of a fetch that a caller can act upon.
var (
	// ErrNotFound: the server has no such repository.
	ErrNotFound = upload.ErrNotFound
	// ErrEmpty: the repository has no refs at the server.
	ErrEmpty = upload.ErrEmpty
	// ErrAuth: the server wants credentials, which are never given.
	ErrAuth = upload.ErrAuth
	// ErrFormat: the repositories hash their objects differently.
	ErrFormat = errors.New("repositories have different object formats")
	// ErrSlow: less than 1 KiB a second came for 30 s.
	ErrSlow = errors.New("server is too slow")
	// ErrIncomplete: a server sent objects without others that they need.
	ErrIncomplete = errors.New("server does not have all that an object needs")
	// ErrUnwanted: a server sent objects, and nothing of what it was asked for.
	ErrUnwanted = errors.New("server sent nothing that was asked for")
	// ErrDisk: less than Config.MinFreeDisk is free.
	ErrDisk = errors.New("not enough free disk")
)

// MissingError is returned, wrapped, when a server says that it does not serve an
// object.
type MissingError = upload.MissingError

// LimitError is returned, wrapped, when a server goes beyond a limit.
type LimitError = upload.LimitError

// classified adds what the error means to those who do not know us. A server is broken
// by what holds for all its repositories: that one is missing, or redirected to another
// server that is broken, is what any stranger can have it say.
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
