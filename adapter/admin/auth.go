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
	"strconv"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/wire"
)

const (
	kindHTTPAuth  = 27235 // NIP-98
	authWindow    = time.Minute
	maxAuthHeader = 8 << 10
	maxUsed       = 4_096
	// usedPrefix and the id of an accepted request are the key of a record of its end.
	usedPrefix = "admin/used/"
)

var (
	errNoAuth   = errors.New("authorization missing: want one header \"Authorization: Nostr <base64 of an event of kind 27235>\"")
	errAuth     = errors.New("unusable authorization")
	errOwner    = errors.New("not by an owner of this server")
	errReplayed = errors.New("request was already used")
	errBusy     = errors.New("too many requests in two minutes")
	errEarly    = errors.New("dated less than a minute after the start of a server that does not keep used requests")
	errSaving   = errors.New("saving the id of the request failed")
)

type auth struct {
	// read-only
	owners    map[graspsync.PubKey]bool
	identity  nip34.Identity
	urls      map[graspsync.URL]bool
	used      state.Store // ids of accepted requests
	notBefore int64       // requests up to this time are refused, in Unix seconds

	// verifySlots is held while a signature and the records are checked. Clients take turns.
	verifySlots *limit.Slots
}

// signedRequest is an authorization whose body, signature and replay are not yet checked.
type signedRequest struct {
	event   graspsync.Event
	payload string // hex
}

func (a *auth) parseAuthorization(header http.Header, method string, now time.Time) (signedRequest, error) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return signedRequest{}, errNoAuth
	}
	scheme, encoded, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Nostr") { // RFC 9110, 11.1
		return signedRequest{}, errNoAuth
	}
	if len(encoded) > maxAuthHeader {
		return signedRequest{}, fmt.Errorf("%w: %d bytes", errAuth, len(encoded))
	}
	data, err := base64.StdEncoding.Strict().DecodeString(strings.TrimLeft(encoded, " "))
	if err != nil {
		return signedRequest{}, fmt.Errorf("%w: not base64", errAuth)
	}
	ev, err := wire.ParseEvent(data)
	if err != nil {
		return signedRequest{}, fmt.Errorf("%w: not an event: %w", errAuth, err)
	}
	return a.checkEvent(ev, method, now)
}

func (a *auth) checkEvent(ev graspsync.Event, method string, now time.Time) (c signedRequest, err error) {
	if ev.Kind != kindHTTPAuth {
		return c, fmt.Errorf("%w: kind %d, want %d", errAuth, ev.Kind, kindHTTPAuth)
	}
	if !a.owners[ev.PubKey] {
		return c, errOwner
	}
	at := int64(ev.CreatedAt)
	if off := at - now.Unix(); off > int64(authWindow/time.Second) || off < -int64(authWindow/time.Second) {
		return c, fmt.Errorf("%w: created_at is %d, the clock of the server %d", errAuth, at, now.Unix())
	}
	values := make(map[string]string, 3)
	for _, name := range []string{"u", "method", "payload"} {
		if values[name], err = singleValue(ev.Event, name); err != nil {
			return c, err
		}
	}
	switch {
	case !a.isOwnURL(values["u"]):
		return c, fmt.Errorf("%w: signed for another URL, %q", errAuth, graspsync.Clip(values["u"], 200))
	case values["method"] != method:
		return c, fmt.Errorf("%w: signed for another method", errAuth)
	}
	return signedRequest{ev, values["payload"]}, nil
}

func (a *auth) isOwnURL(text string) bool {
	u, err := parseURL(text)
	return err == nil && (a.urls[u] || u.Query == "" && a.identity.IsServedAt(u))
}

func parseURL(s string) (graspsync.URL, error) {
	if !strings.Contains(s, "://") {
		return graspsync.URL{}, errors.New("no scheme")
	}
	return graspsync.ParseURL(s, slices.Concat(graspsync.HTTPSchemes, graspsync.RelaySchemes))
}

func singleValue(ev *nostr.Event, name string) (value string, err error) {
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

func (a *auth) verify(ctx context.Context, c signedRequest, body []byte, client string) error {
	sum := sha256.Sum256(body)
	if c.payload != hex.EncodeToString(sum[:]) {
		return fmt.Errorf("%w: signed for another body", errAuth)
	}
	slot, err := a.verifySlots.Acquire(ctx, limit.Stranger{ID: client}, 1)
	if err != nil {
		return err
	}
	defer slot.Release()
	if ok, err := c.event.CheckSignature(); !ok || err != nil || !c.event.CheckID() {
		return fmt.Errorf("%w: wrong id or signature", errAuth)
	}
	if int64(c.event.CreatedAt) <= a.notBefore {
		return fmt.Errorf("%w: sign it again after %s", errEarly, time.Unix(a.notBefore, 0).UTC().Format("15:04:05 UTC"))
	}
	return a.recordUse(ctx, c.event.ID.String(), time.Now().Unix())
}

// recordUse records the id of a request. The caller has the slot of verifySlots.
func (a *auth) recordUse(ctx context.Context, id string, now int64) error {
	var old []string
	recent := 0
	for r, err := range a.used.Each(ctx, usedPrefix) {
		if err != nil {
			return fmt.Errorf("%w: %w", errSaving, err)
		}
		if r.Key == usedPrefix+id {
			return errReplayed
		}
		if until, _ := strconv.ParseInt(string(r.Value), 10, 64); until < now {
			old = append(old, r.Key)
		} else if recent++; recent >= maxUsed {
			return errBusy
		}
	}
	until := strconv.AppendInt(nil, now+2*int64(authWindow/time.Second), 10)
	err := errors.Join(a.used.Delete(ctx, old...), a.used.Put(ctx, state.Record{Key: usedPrefix + id, Value: until}))
	if err != nil {
		return fmt.Errorf("%w: %w", errSaving, err)
	}
	return nil
}
