package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Client sends commands to a server.
type Client struct {
	URL string
	// SignedURL is the URL in signatures, by default URL.
	SignedURL string
	// Key is an owner's secret key in 64 hex digits.
	Key string
	// HTTP sends the requests. The default follows no redirects.
	HTTP *http.Client
}

var (
	// ErrAnswer means that a server has answered with an error.
	ErrAnswer = errors.New("the server says")
	// ErrNoServer means that no server at the URL accepts commands.
	ErrNoServer = errors.New("no server accepts commands")
)

const maxAnswer = 64 << 20

// Do returns the result of a method. The error wraps [ErrAnswer] or [ErrNoServer].
func (c Client) Do(ctx context.Context, method string, params ...string) (json.RawMessage, error) {
	if params == nil {
		params = []string{}
	}
	body, err := json.Marshal(request{method, params})
	if err != nil {
		return nil, err
	}
	authorization, err := Authorize(c.Key, cmp.Or(c.SignedURL, c.URL), http.MethodPost, body, time.Now())
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", ContentType)
	req.Header.Set("Authorization", authorization)
	client := c.HTTP
	if client == nil {
		client = &http.Client{Timeout: commandTimeout, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	}
	req.Close = true // a kept connection may have ended with a restarted server, and a POST is not repeated
	resp, err := client.Do(req)
	if err != nil {
		var at *url.Error
		if errors.As(err, &at) {
			err = at.Err // without the method and the URL
		}
		return nil, fmt.Errorf("%w at %s: %w", ErrNoServer, c.URL, err)
	}
	defer func() { _ = resp.Body.Close() }() // everything was read
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  string          `json:"error"`
	}
	if err := json.Unmarshal(data, &answer); err != nil || answer.Error == "" && answer.Result == nil {
		return nil, fmt.Errorf("%w at %s: it answers %s", ErrNoServer, c.URL, graspsync.Printable(resp.Status))
	}
	if strings.Contains(answer.Error, "unknown method") { // khatru answers so if the server has no Handler
		return nil, fmt.Errorf("%w at %s: it has no owner", ErrNoServer, c.URL)
	}
	if answer.Error != "" {
		return nil, fmt.Errorf("%w: %s", ErrAnswer, graspsync.Printable(answer.Error))
	}
	return answer.Result, nil
}

// Authorize returns the Authorization header of a request (NIP-98). key has 64 hex digits.
func Authorize(key, address, method string, body []byte, at time.Time) (string, error) {
	sum := sha256.Sum256(body)
	ev := nostr.Event{
		CreatedAt: nostr.Timestamp(at.Unix()), Kind: kindHTTPAuth,
		// Each event is accepted once, so equal commands in one second need a nonce.
		Tags: nostr.Tags{{"u", address}, {"method", method}, {"payload", hex.EncodeToString(sum[:])}, {"nonce", rand.Text()}},
	}
	if err := ev.Sign(key); err != nil {
		return "", errors.New("signing the request: not a secret key")
	}
	return "Nostr " + base64.StdEncoding.EncodeToString([]byte(ev.String())), nil
}
