package admin

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/wire"
)

const (
	kindHTTPAuth = 27235 // NIP-98
	// window is the maximum difference of the signer's clock, as NIP-98 suggests.
	window = time.Minute
	// maxAuth is the maximum length of an Authorization in bytes. An event with three tags has less
	// than 1 KiB.
	maxAuth = 8 << 10
	// maxSeen is the maximum number of remembered requests of owners, each for two windows.
	maxSeen = 4_096
)

// Reasons for which a request is refused.
var (
	errNoAuth   = errors.New("authorization missing: want one header \"Authorization: Nostr <base64 of an event of kind 27235>\"")
	errAuth     = errors.New("unusable authorization")
	errOwner    = errors.New("not by an owner of this server")
	errReplayed = errors.New("request was already used")
	errBusy     = errors.New("too many requests in two minutes")
	errEarly    = errors.New("signed before the server started, or before a request of its last run")
	errKeeping  = errors.New("saving the time of the request failed")
	errOver     = errors.New("too many wrong requests: wait")
)

// auth decides whether a request is signed by an owner. The zero value refuses all.
type auth struct {
	// read-only
	owners   map[graspsync.PubKey]bool
	identity nip34.Identity
	urls     map[graspsync.URL]bool
	started  time.Time
	used     *used

	checking sync.Mutex // held while a signature is checked, so that one processor is used at most

	mu   sync.Mutex
	seen map[graspsync.EventID]time.Time // guarded by mu; end of remembering by id
}

// claim is an authorization that is valid except for body, signature and replay, which are not
// checked yet.
type claim struct {
	event   graspsync.Event
	payload string // hex
}

// claimed reads an authorization at low cost.
func (a *auth) claimed(header http.Header, method string, now time.Time) (claim, error) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return claim{}, errNoAuth
	}
	scheme, encoded, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Nostr") { // RFC 9110, 11.1
		return claim{}, errNoAuth
	}
	if len(encoded) > maxAuth {
		return claim{}, fmt.Errorf("%w: %d bytes", errAuth, len(encoded))
	}
	data, err := base64.StdEncoding.Strict().DecodeString(strings.TrimLeft(encoded, " "))
	if err != nil {
		return claim{}, fmt.Errorf("%w: not base64", errAuth)
	}
	ev, err := wire.ParseEvent(data)
	if err != nil {
		return claim{}, fmt.Errorf("%w: not an event: %w", errAuth, err)
	}
	return a.examine(ev, method, now)
}

// examine checks the content of an event without its signature.
func (a *auth) examine(ev graspsync.Event, method string, now time.Time) (c claim, err error) {
	if ev.Kind != kindHTTPAuth {
		return c, fmt.Errorf("%w: kind %d, want %d", errAuth, ev.Kind, kindHTTPAuth)
	}
	if !a.owners[ev.PubKey] {
		return c, errOwner
	}
	at := int64(ev.CreatedAt)
	if off := at - now.Unix(); off > int64(window/time.Second) || off < -int64(window/time.Second) {
		return c, fmt.Errorf("%w: created_at is %d, the clock of the server %d", errAuth, at, now.Unix())
	}
	said := make(map[string]string, 3)
	for _, name := range []string{"u", "method", "payload"} {
		if said[name], err = only(ev.Event, name); err != nil {
			return c, err
		}
	}
	switch {
	case !a.isOurs(said["u"]):
		return c, fmt.Errorf("%w: signed for another URL, %q", errAuth, graspsync.Clip(said["u"], 200))
	case said["method"] != method:
		return c, fmt.Errorf("%w: signed for another method", errAuth)
	}
	return claim{ev, said["payload"]}, nil
}

// isOurs reports whether a URL names this server.
func (a *auth) isOurs(text string) bool {
	u, err := parseURL(text)
	return err == nil && (a.urls[u] || u.Query == "" && a.identity.IsServedAt(u))
}

// parseURL reads the URL of a page or of the relay.
func parseURL(s string) (graspsync.URL, error) {
	if !strings.Contains(s, "://") {
		return graspsync.URL{}, errors.New("no scheme")
	}
	return graspsync.ParseURL(s, slices.Concat(graspsync.HTTPSchemes, graspsync.RelaySchemes))
}

// only returns the value of a tag that must occur once.
func only(ev *nostr.Event, name string) (value string, err error) {
	n := 0
	for _, tag := range ev.Tags {
		if len(tag) > 0 && tag[0] == name {
			if n++; len(tag) == 2 {
				value = tag[1]
			}
		}
	}
	if n != 1 || value == "" {
		return "", fmt.Errorf("%w: want one tag %q with one value", errAuth, name)
	}
	return value, nil
}

// verify checks body, signature and replay of a claim, and records it. may reports whether there is
// time to check a signature.
func (a *auth) verify(ctx context.Context, c claim, body []byte, now time.Time, may func() bool) error {
	sum := sha256.Sum256(body)
	if c.payload != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("%w: signed for another body", errAuth)
	}
	if !may() {
		return errOver
	}
	if !a.signed(c.event) {
		return fmt.Errorf("%w: wrong id or signature", errAuth)
	}
	at := int64(c.event.CreatedAt)
	after, err := a.after(ctx, now)
	switch {
	case err != nil:
		return err
	case at <= after:
		return fmt.Errorf("%w: sign it again after %s", errEarly, time.Unix(after, 0).UTC().Format("15:04:05 UTC"))
	}
	if err := a.take(c.event.ID, now); err != nil {
		return err
	}
	return a.used.note(ctx, at)
}

// after returns the time up to which requests may have been accepted before the start. It is
// computed from the present time, because the clock may have been set meanwhile.
func (a *auth) after(ctx context.Context, now time.Time) (int64, error) {
	started := now.Add(-time.Since(a.started)).Unix()
	if a.used == nil { // an earlier process may have accepted requests dated up to a window ahead
		return started + int64(window/time.Second), nil
	}
	before, err := a.used.before(ctx)
	return max(started, before), err
}

func (a *auth) signed(ev graspsync.Event) bool {
	if !ev.CheckID() {
		return false
	}
	a.checking.Lock()
	defer a.checking.Unlock()
	ok, err := ev.CheckSignature()
	return ok && err == nil
}

// take records the id of a request. Only requests signed by owners are recorded, so nobody else can
// fill the table.
func (a *auth) take(id graspsync.EventID, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, used := a.seen[id]; used {
		return errReplayed
	}
	if len(a.seen) >= maxSeen {
		for id, until := range a.seen {
			if now.After(until) {
				delete(a.seen, id)
			}
		}
	}
	if len(a.seen) >= maxSeen {
		return errBusy
	}
	a.seen[id] = now.Add(2*window + time.Second)
	return nil
}
