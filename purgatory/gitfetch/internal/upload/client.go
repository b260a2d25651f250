package upload

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Limits are limits of data from servers.
type Limits struct {
	AdvertBytes int64  // of the answer to the GET
	AdvertRefs  int    // in the answer to the GET
	PackBytes   int64  // of a pack, as received
	PackObjects uint32 // by the header of the pack
}

// Client sends requests to servers. It is safe for concurrent use.
type Client struct {
	HTTP      *http.Client
	Limits    Limits
	UserAgent string
	// Answered, if not nil, is called with each host that answers as a git server, while the
	// connection is open.
	Answered func(host string)
}

const (
	advertisement = "application/x-git-upload-pack-advertisement"
	uploadRequest = "application/x-git-upload-pack-request"
	uploadResult  = "application/x-git-upload-pack-result"
)

// Meter measures answers. Discover, ListTips and Fetch set Sending while the server must send.
type Meter struct {
	Bytes   atomic.Int64
	Total   *atomic.Int64 // Bytes of several meters
	Sending atomic.Bool
}

func (m *Meter) add(n int) {
	m.Bytes.Add(int64(n))
	m.Total.Add(int64(n))
}

// Discover requests the capabilities and refs of a server.
func (c *Client) Discover(ctx context.Context, clone graspsync.CloneURL, m *Meter) (*Server, error) {
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
	defer func() { _ = resp.Body.Close() }() // the rest is not needed
	if err := check(resp, advertisement); err != nil {
		return nil, fmt.Errorf("discovering: %w", err)
	}
	if c.Answered != nil {
		c.Answered(resp.Request.URL.Hostname())
	}
	m.Sending.Store(true)
	defer m.Sending.Store(false)
	body := c.bounded(resp.Body, m)
	s, err := parseAdvertisement(body, c.Limits.AdvertRefs)
	if err != nil {
		return nil, fmt.Errorf("discovering: %w", err)
	}
	_, _ = io.CopyN(io.Discard, body, maxDrop) // allows reuse of the connection
	s.Requests = hops(resp)
	return s, s.setBase(resp.Request.URL)
}

const maxDrop = 4 << 10

func (c *Client) bounded(body io.Reader, m *Meter) io.Reader {
	return &bounded{r: body, left: c.Limits.AdvertBytes, most: c.Limits.AdvertBytes, limit: "advertisement bytes", meter: m}
}

func (c *Client) header(req *http.Request) {
	req.Header.Set("User-Agent", c.UserAgent)
	req.Header.Set("Git-Protocol", "version=2")
}

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

// Fetch requests objects by id and writes the pack, which may be incomplete, to w. The server may omit
// objects that haves reach.
func (c *Client) Fetch(ctx context.Context, s *Server, wants, haves []nip34.ObjectID, w io.Writer, m *Meter) error {
	resp, err := c.post(ctx, s, s.request(wants, haves))
	if err != nil {
		return fmt.Errorf("fetching: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	m.Sending.Store(true)
	defer m.Sending.Store(false)
	p := &packReader{w: w, meter: m, limits: c.Limits}
	if err := s.readAnswer(newReader(resp.Body), p); err != nil {
		return fmt.Errorf("fetching: %w", err)
	}
	return p.end()
}

// ListTips stores the tips of refs of a version 2 server in s.
func (c *Client) ListTips(ctx context.Context, s *Server, m *Meter) error {
	resp, err := c.post(ctx, s, s.requestTips())
	if err != nil {
		return fmt.Errorf("listing refs: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	m.Sending.Store(true)
	defer m.Sending.Store(false)
	if err := s.readTips(newReader(c.bounded(resp.Body, m)), c.Limits.AdvertRefs); err != nil {
		return fmt.Errorf("listing refs: %w", err)
	}
	return nil
}

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
		_ = resp.Body.Close() // err is more specific
		return nil, err
	}
	return resp, nil
}
