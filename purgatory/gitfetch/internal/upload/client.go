package upload

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Limits bound what is read of a server.
type Limits struct {
	AdvertBytes int64  // of the answer to the GET
	AdvertRefs  int    // in it
	PackBytes   int64  // of a pack, as it comes
	PackObjects uint32 // in it, by its header
}

// Client asks servers. It may be used concurrently.
type Client struct {
	// HTTP makes the requests. It must judge every address and redirect, have no
	// proxy, no cookies and no credentials: one of package egress.
	HTTP      *http.Client
	Limits    Limits
	UserAgent string
	// Answered, if not nil, is told the host of each that answers as a git server,
	// while it is connected.
	Answered func(host string)
}

const (
	advertisement = "application/x-git-upload-pack-advertisement"
	uploadRequest = "application/x-git-upload-pack-request"
	uploadResult  = "application/x-git-upload-pack-result"
)

// Meter is told how much comes, and when something is expected to come: between
// Begin and End. It may be nil nowhere.
type Meter interface {
	Begin()
	Came(n int)
	End()
}

// Discover finds out what the server of a clone URL is.
func (c *Client) Discover(ctx context.Context, clone graspsync.CloneURL, m Meter) (*Server, error) {
	if clone.URL().Query != "" {
		return nil, fmt.Errorf("%w: clone URL with a query", ErrProtocol)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, clone.String()+"/info/refs?service=git-upload-pack", nil)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	c.header(req)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("discovering: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // what is left of it is of no use
	if err := check(resp, advertisement); err != nil {
		return nil, fmt.Errorf("discovering: %w", err)
	}
	if c.Answered != nil {
		c.Answered(resp.Request.URL.Hostname())
	}
	m.Begin()
	defer m.End()
	body := c.bounded(resp.Body, m)
	s, err := parseAdvertisement(body, c.Limits.AdvertRefs)
	if err != nil {
		return nil, fmt.Errorf("discovering: %w", err)
	}
	_, _ = io.CopyN(io.Discard, body, maxDrop) // so that the connection can be used again
	s.Requests = hops(resp)
	return s, s.setBase(resp.Request.URL)
}

// maxDrop is what is read of a body behind its end, in bytes.
const maxDrop = 4 << 10

func (c *Client) bounded(body io.Reader, m Meter) io.Reader {
	return &bounded{r: body, left: c.Limits.AdvertBytes, most: c.Limits.AdvertBytes, limit: "advertisement bytes", meter: m}
}

func (c *Client) header(req *http.Request) {
	req.Header.Set("User-Agent", c.UserAgent)
	req.Header.Set("Git-Protocol", "version=2")
}

// check judges a response by its head. Its body was inflated, if it was compressed
// the one way that was offered; limits count what came out.
func check(resp *http.Response, contentType string) error {
	switch {
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusGone:
		return ErrNotFound
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusProxyAuthRequired:
		return ErrAuth
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		if err, is := busy(resp, time.Now()); is {
			return err
		}
		return fmt.Errorf("%w: status %d", ErrStatus, resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: status %d", ErrStatus, resp.StatusCode)
	}
	header := resp.Header.Get("Content-Type")
	if name, _, _ := strings.Cut(header, ";"); !strings.EqualFold(strings.TrimSpace(name), contentType) {
		return fmt.Errorf("%w: content type %q", ErrProtocol, graspsync.Printable(header))
	}
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return fmt.Errorf("%w: content encoding %q", ErrProtocol, graspsync.Printable(encoding))
	}
	return nil
}

// Fetch asks a server for objects by id and writes the pack that it sends to w. The
// server may leave out what can be reached from haves, and send deltas against it.
// The pack's header was checked against the limits before its first byte is
// written; whether it is complete is for the reader of w to find out.
func (c *Client) Fetch(ctx context.Context, s *Server, wants, haves []nip34.ObjectID, w io.Writer, m Meter) error {
	resp, err := c.post(ctx, s, s.request(wants, haves))
	if err != nil {
		return fmt.Errorf("fetching: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // what is left of it is of no use
	m.Begin()
	defer m.End()
	p := &packReader{w: w, meter: m, limits: c.Limits}
	if err := s.readAnswer(newReader(resp.Body), p); err != nil {
		return fmt.Errorf("fetching: %w", err)
	}
	return p.end()
}

// ListTips asks a server of version 2 what its refs point to, and remembers it.
func (c *Client) ListTips(ctx context.Context, s *Server, m Meter) error {
	resp, err := c.post(ctx, s, s.requestTips())
	if err != nil {
		return fmt.Errorf("listing refs: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // what is left of it is of no use
	m.Begin()
	defer m.End()
	if err := s.readTips(newReader(c.bounded(resp.Body, m)), c.Limits.AdvertRefs); err != nil {
		return fmt.Errorf("listing refs: %w", err)
	}
	return nil
}

// post makes a POST, once: there is no body to make it again with.
func (c *Client) post(ctx context.Context, s *Server, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	c.header(req)
	if s.Version != 2 {
		req.Header.Del("Git-Protocol")
	}
	req.GetBody = nil
	req.Header.Set("Content-Type", uploadRequest)
	req.Header.Set("Accept", uploadResult)
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if err := check(resp, uploadResult); err != nil {
		_ = resp.Body.Close() // the error at hand says more
		return nil, err
	}
	return resp, nil
}
