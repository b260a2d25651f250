package egress

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/graspsync/graspsync"
)

const (
	handshakeTimeout = 10 * time.Second
	headerTimeout    = 30 * time.Second // from the end of the request to the headers
	idleTimeout      = 30 * time.Second
	maxRedirects     = 3 // an honest server needs one or two
	mostHeaderBytes  = 64 << 10
	mostIdle         = 32
	mostIdlePerHost  = 2
)

// HTTPClient returns a client whose requests all go through d: each URL, that of a
// redirect too, is read by [graspsync.ParseURL] and must pass [Dialer.Check]; each
// connection is made by [Dialer.DialContext]. timeout bounds a whole exchange
// including its body; 0 leaves that to the request's context.
//
// Redirects are followed for plain GET requests only, at most
// 3 of them, never from https to http; a request that asks for
// an upgrade, as websockets do, follows none. A redirect that is not followed is an
// error that wraps [ErrRedirect]. There are no proxies, cookies or referers;
// headers of a response may have 64 KiB, and their arrival may take 30 s. Bodies
// are for the caller to bound, as is the number of requests.
//
// The client speaks HTTP/1.1. It keeps idle connections for 30 s, unless the
// caller ends them with CloseIdleConnections.
func (d *Dialer) HTTPClient(timeout time.Duration) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	guard := &guardedTransport{d: d, next: &http.Transport{
		Proxy:                  nil, // not even from the environment
		DialContext:            d.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: d.cfg.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    handshakeTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		MaxResponseHeaderBytes: mostHeaderBytes,
		MaxIdleConns:           mostIdle,
		MaxIdleConnsPerHost:    mostIdlePerHost,
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

// guardedTransport judges every request, and the target of every redirect before
// http.Client sees it: what http.Client says about a bad one repeats it in full.
type guardedTransport struct {
	d    *Dialer
	next *http.Transport
}

// RoundTrip implements [http.RoundTripper].
func (g *guardedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.check(req.URL); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // the contract of RoundTripper; nothing was read
		}
		return nil, err
	}
	resp, err := g.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := g.checkRedirect(req, resp); err != nil {
		_ = resp.Body.Close() // the error at hand says more
		return nil, err
	}
	return resp, nil
}

// CloseIdleConnections is found by [http.Client.CloseIdleConnections].
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
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		if location == "" {
			return nil
		}
	default:
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
