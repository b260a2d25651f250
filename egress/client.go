package egress

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

const (
	handshakeTimeout = 10 * time.Second
	headerTimeout    = 30 * time.Second // from the end of the request to the headers
	idleTimeout      = 30 * time.Second
	maxRedirects     = 3 // an honest server needs one or two
	maxHeaderBytes   = 64 << 10
	maxIdle          = 32
	maxIdlePerHost   = 2
)

// HTTPClient returns a client that sends all requests through d. Each URL, also of a redirect, must
// pass [graspsync.ParseURL] and [Dialer.Check]. timeout, unless 0, limits an exchange including the
// body.
//
// The client follows at most 3 redirects of a plain GET, and none from https to http or for an
// upgrade. Other redirects return an error that wraps [ErrRedirect]. It uses HTTP/1.1 without
// proxies, cookies and referers. Response headers may have 64 KiB and must arrive within 30 s. The
// caller limits bodies.
func (d *Dialer) HTTPClient(timeout time.Duration) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	guard := &guardedTransport{d: d, next: &http.Transport{
		Proxy:                  nil, // also not from the environment
		DialContext:            d.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: d.cfg.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshakeTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		Protocols:              &protocols,
	}}
	return &http.Client{
		Transport: guard,
		Timeout:   timeout,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("%w: more than %d in a row", ErrRedirect, maxRedirects)
			}
			req.Header.Del("Referer")
			return nil
		},
	}
}

// guardedTransport checks each request first, because errors of http.Client quote the whole URL.
type guardedTransport struct {
	d    *Dialer
	next *http.Transport
}

// RoundTrip implements [http.RoundTripper].
func (g *guardedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.check(req.URL); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // RoundTrip must close the body
		}
		return nil, err
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := g.checkRedirect(req, resp); err != nil {
		_ = resp.Body.Close() // the other error explains more
		return nil, err
	}
	return resp, nil
}

// CloseIdleConnections implements the method that [http.Client.CloseIdleConnections] calls.
func (g *guardedTransport) CloseIdleConnections() { g.next.CloseIdleConnections() }

func (g *guardedTransport) check(u *url.URL) error {
	parsed, err := graspsync.ParseURL(u.String(), graspsync.HTTPSchemes)
	if err != nil {
		return err
	}
	return g.d.Check(parsed)
}

func (g *guardedTransport) checkRedirect(req *http.Request, resp *http.Response) error {
	location := resp.Header.Get("Location")
	redirects := []int{301, 302, 303, 307, 308}
	if location == "" || !slices.Contains(redirects, resp.StatusCode) {
		return nil
	}
	if req.Method != http.MethodGet || req.Header.Get("Upgrade") != "" {
		return fmt.Errorf("%w: only a plain GET follows one", ErrRedirect)
	}
	next, err := req.URL.Parse(location)
	if err != nil {
		return fmt.Errorf("%w: unreadable target", ErrRedirect)
	}
	if req.URL.Scheme == "https" && next.Scheme != "https" {
		return fmt.Errorf("%w: away from https", ErrRedirect)
	}
	if err := g.check(next); err != nil {
		return fmt.Errorf("%w: %w", ErrRedirect, err)
	}
	return nil
}
