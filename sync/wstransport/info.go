package wstransport

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

// fetchInfo is the goroutine that fetches the relay's NIP-11 document. Many relays
// have none, so that a failure is no news.
func (c *conn) fetchInfo(ctx context.Context, u graspsync.URL) {
	defer close(c.asked)
	info, err := c.t.getInfo(ctx, u)
	if err != nil {
		c.t.cfg.Logger.Debug("no NIP-11 document", keyRelay, c.relay, keyError, inBounds(err))
		return
	}
	c.info.Store(&info)
}

// getInfo fetches and reads a NIP-11 document. One that is too large, or breaks
// off, is used as far as it goes.
func (t *Transport) getInfo(ctx context.Context, u graspsync.URL) (wire.Info, error) {
	if u.Plaintext() {
		u.Scheme = "http"
	} else {
		u.Scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return wire.Info{}, fmt.Errorf("asking for a NIP-11 document: %w", err)
	}
	req.Header.Set("Accept", "application/nostr+json")
	req.Header.Set("User-Agent", t.cfg.UserAgent)
	client := t.cfg.Dialer.HTTPClient(t.cfg.fixed.InfoTimeout)
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return wire.Info{}, fmt.Errorf("asking for a NIP-11 document: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // nothing was written
	if resp.StatusCode != http.StatusOK {
		return wire.Info{}, fmt.Errorf("asking for a NIP-11 document: status %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, wire.MaxInfo))
	if err != nil && len(data) == 0 {
		return wire.Info{}, fmt.Errorf("reading a NIP-11 document: %w", err)
	}
	return wire.ParseInfo(data), nil
}
