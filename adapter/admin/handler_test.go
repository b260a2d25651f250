package admin_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
)

const (
	ownerKey    = "0000000000000000000000000000000000000000000000000000000000000003"
	strangerKey = "0000000000000000000000000000000000000000000000000000000000000004"
	relayURL    = "wss://grasp.example"
	body        = `{"method":"block","params":["author","ab"]}`
)

func keyOf(t testing.TB, secret string) graspsync.PubKey {
	hex, err := nostr.GetPublicKey(secret)
	require.NoError(t, err)
	k, err := graspsync.ParsePubKey(hex)
	require.NoError(t, err)
	return k
}

// recorder is an Operator that accepts and records all commands.
type recorder struct {
	mu   sync.Mutex
	told []string
	all  []rules.Rule
}

func (o *recorder) Commands() []string { return []string{"allow", "block", "rules"} }

func (o *recorder) Do(_ context.Context, by, command string, args ...string) (any, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if command == "rules" {
		return o.all, nil
	}
	o.told = append(o.told, fmt.Sprint(by[:8], " ", command, " ", args))
	return nil, nil
}

func newHandler(t testing.TB) (*admin.Handler, *recorder) {
	return newHandlerWith(t, state.NewMemory())
}

func newHandlerWith(t testing.TB, records state.Store) (*admin.Handler, *recorder) {
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	o := &recorder{}
	h, err := admin.New(o, admin.Config{
		Owners: []graspsync.PubKey{keyOf(t, ownerKey)}, Identity: identity, URLs: []string{"http://127.0.0.1:7334/"}, State: records,
	})
	require.NoError(t, err)
	return h, o
}

// attempt is a request, and how it was signed.
type attempt struct {
	method, contentType, body string
	header                    http.Header
	remote                    string
}

func (a attempt) do(t testing.TB, h http.Handler) (status int, said string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), a.method, "/", strings.NewReader(a.body))
	r.Header = a.header.Clone()
	r.Header.Set("Content-Type", a.contentType)
	r.Header.Set("X-Forwarded-Host", "evil.example")
	r.Host = "evil.example"
	r.RemoteAddr = "127.0.0.1:1"
	if a.remote != "" {
		r.RemoteAddr = a.remote
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.True(t, json.Valid(w.Body.Bytes()), w.Body.String())
	return w.Code, w.Body.String()
}

func signed(t testing.TB, secret, url, method, body string, at time.Time) http.Header {
	value, err := admin.Authorize(secret, url, method, []byte(body), at)
	require.NoError(t, err)
	return http.Header{"Authorization": {value}}
}

// changed returns an authorization after a change, signed again by its author or not.
func changed(t testing.TB, again bool, change func(*nostr.Event)) http.Header {
	h := signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now())
	data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(h.Get("Authorization"), "Nostr "))
	require.NoError(t, err)
	var ev nostr.Event
	require.NoError(t, json.Unmarshal(data, &ev))
	change(&ev)
	if again {
		require.NoError(t, ev.Sign(ownerKey))
	}
	return http.Header{"Authorization": {"Nostr " + base64.StdEncoding.EncodeToString([]byte(ev.String()))}}
}

func post(header http.Header) attempt {
	return attempt{method: http.MethodPost, contentType: admin.ContentType, body: body, header: header}
}

func tag(name, value string) func(*nostr.Event) {
	return func(ev *nostr.Event) {
		for i := range ev.Tags {
			if ev.Tags[i][0] == name {
				ev.Tags[i][1] = value
			}
		}
	}
}

// Requests without the owner's key, and other events that the owner has signed, are refused. The handler
// of khatru accepts events of other kinds, methods and times, any number of times.
func TestAttacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := state.NewMemory()
		h, o := newHandlerWith(t, records)
		time.Sleep(time.Hour)
		now := time.Now()
		resigned := func(change func(*nostr.Event)) http.Header { return changed(t, true, change) }
		good := signed(t, ownerKey, relayURL, http.MethodPost, body, now)
		for name, c := range map[string]struct {
			attempt attempt
			status  int
			says    string
		}{
			"nothing is signed":  {post(http.Header{}), 401, "authorization missing"},
			"two authorizations": {post(http.Header{"Authorization": {good.Get("Authorization"), good.Get("Authorization")}}), 401, "authorization missing"},
			"basic":              {post(http.Header{"Authorization": {"Basic b3duZXI6"}}), 401, "authorization missing"},
			"no base64":          {post(http.Header{"Authorization": {"Nostr !!!"}}), 401, "base64"},
			"no event":           {post(http.Header{"Authorization": {"Nostr " + base64.StdEncoding.EncodeToString([]byte(`{"kind":"x"}`))}}), 401, "not an event"},
			"null":               {post(http.Header{"Authorization": {"Nostr " + base64.StdEncoding.EncodeToString([]byte(`null`))}}), 401, "not an event"},
			"very long":          {post(http.Header{"Authorization": {"Nostr " + strings.Repeat("AAAA", 1<<16)}}), 401, "bytes"},
			"a stranger's":       {post(signed(t, strangerKey, relayURL, http.MethodPost, body, now)), 403, "not by an owner"},
			"forged author": {post(changed(t, false, func(ev *nostr.Event) {
				require.NoError(t, ev.Sign(strangerKey))
				ev.PubKey = keyOf(t, ownerKey).String()
			})), 401, "signature"},
			"forged id":               {post(changed(t, false, func(ev *nostr.Event) { ev.ID = strings.Repeat("ab", 32) })), 401, "signature"},
			"content added":           {post(changed(t, false, func(ev *nostr.Event) { ev.Content = "x" })), 401, "signature"},
			"another signature":       {post(changed(t, false, func(ev *nostr.Event) { ev.Sig = strings.Repeat("ab", 64) })), 401, "signature"},
			"another kind":            {post(resigned(func(ev *nostr.Event) { ev.Kind = 1 })), 401, "kind 1"},
			"an old kind":             {post(resigned(func(ev *nostr.Event) { ev.Kind = 22242 })), 401, "kind"},
			"for another host":        {post(signed(t, ownerKey, "wss://other.example", http.MethodPost, body, now)), 401, "another URL"},
			"for the host asked":      {post(signed(t, ownerKey, "wss://evil.example", http.MethodPost, body, now)), 401, "another URL"},
			"for another port":        {post(signed(t, ownerKey, "wss://grasp.example:8443", http.MethodPost, body, now)), 401, "another URL"},
			"for another path":        {post(signed(t, ownerKey, "wss://grasp.example/x", http.MethodPost, body, now)), 401, "another URL"},
			"for a longer host":       {post(signed(t, ownerKey, "wss://grasp.example.evil.example", http.MethodPost, body, now)), 401, "another URL"},
			"with user-info":          {post(signed(t, ownerKey, "wss://grasp.example@evil.example", http.MethodPost, body, now)), 401, "another URL"},
			"with a query":            {post(signed(t, ownerKey, "wss://grasp.example/?x=1", http.MethodPost, body, now)), 401, "another URL"},
			"for no scheme":           {post(signed(t, ownerKey, "grasp.example", http.MethodPost, body, now)), 401, "another URL"},
			"for another method":      {post(signed(t, ownerKey, relayURL, http.MethodGet, body, now)), 401, "another method"},
			"for method in lower":     {post(signed(t, ownerKey, relayURL, "post", body, now)), 401, "another method"},
			"for another body":        {post(signed(t, ownerKey, relayURL, http.MethodPost, body+" ", now)), 401, "another body"},
			"body not signed":         {post(resigned(func(ev *nostr.Event) { ev.Tags = ev.Tags[:2] })), 401, `\"payload\"`},
			"empty payload":           {post(resigned(tag("payload", ""))), 401, `\"payload\"`},
			"payload in upper case":   {post(resigned(func(ev *nostr.Event) { ev.Tags[2][1] = strings.ToUpper(ev.Tags[2][1]) })), 401, "another body"},
			"no u":                    {post(resigned(func(ev *nostr.Event) { ev.Tags = ev.Tags[1:] })), 401, `\"u\"`},
			"u without a value":       {post(resigned(func(ev *nostr.Event) { ev.Tags[0] = nostr.Tag{"u"} })), 401, `\"u\"`},
			"two of u":                {post(resigned(func(ev *nostr.Event) { ev.Tags = append(ev.Tags, nostr.Tag{"u", "wss://other.example"}) })), 401, `\"u\"`},
			"two payloads":            {post(resigned(func(ev *nostr.Event) { ev.Tags = append(ev.Tags, ev.Tags[2]) })), 401, `\"payload\"`},
			"a minute ago":            {post(signed(t, ownerKey, relayURL, http.MethodPost, body, now.Add(-61*time.Second))), 401, "the clock of the server"},
			"in a minute":             {post(signed(t, ownerKey, relayURL, http.MethodPost, body, now.Add(61*time.Second))), 401, "the clock of the server"},
			"in a thousand years":     {post(resigned(func(ev *nostr.Event) { ev.CreatedAt = 1 << 62 })), 401, ""},
			"another content type":    {attempt{method: http.MethodPost, contentType: "application/json", body: body, header: good}, 415, ""},
			"GET":                     {attempt{method: http.MethodGet, contentType: admin.ContentType, header: signed(t, ownerKey, relayURL, http.MethodGet, "", now)}, 405, ""},
			"a body that is too long": {attempt{method: http.MethodPost, contentType: admin.ContentType, body: strings.Repeat(" ", 65<<10), header: signed(t, ownerKey, relayURL, http.MethodPost, strings.Repeat(" ", 65<<10), now)}, 413, ""},
		} {
			status, said := c.attempt.do(t, h)
			require.Equal(t, c.status, status, "%s: %s", name, said)
			require.Contains(t, said, c.says, name)
		}
		require.Empty(t, o.told)

		// What was not obeyed has used nothing up.
		for _, url := range []string{relayURL, "wss://grasp.example/", "https://grasp.example", "https://GRASP.example:443/", "http://127.0.0.1:7334"} {
			again := post(signed(t, ownerKey, url, http.MethodPost, body, now))
			status, said := again.do(t, h)
			require.Equal(t, 200, status, "%s: %s", url, said)
			require.JSONEq(t, `{"result":true}`, said)
			status, said = again.do(t, h)
			require.Equal(t, 401, status, "%s, again", url)
			require.Contains(t, said, "already used")
		}
		require.Len(t, o.told, 5)
		for _, off := range []time.Duration{-time.Minute, time.Minute} {
			status, said := post(signed(t, ownerKey, relayURL, http.MethodPost, body, now.Add(off))).do(t, h)
			require.Equal(t, 200, status, said)
		}

		// Nor can it be used once more when the clock has gone on, or after a restart.
		late := signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now().Add(59*time.Second))
		status, _ := post(late).do(t, h)
		require.Equal(t, 200, status)
		for range 4 {
			time.Sleep(30 * time.Second)
			status, _ = post(late).do(t, h)
			require.Equal(t, 401, status)
		}
		last := signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now())
		status, _ = post(last).do(t, h)
		require.Equal(t, 200, status)
		again, after := newHandlerWith(t, records)
		status, said := post(last).do(t, again)
		require.Equal(t, http.StatusUnauthorized, status, said)
		require.Empty(t, after.told)
	})
}

// A request that many clients send concurrently is executed once.
func TestReplayedAtOnce(t *testing.T) {
	h, o := newHandler(t)
	header := signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now().Add(2*time.Second))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { post(header).do(t, h) })
	}
	wg.Wait()
	require.Len(t, o.told, 1)
}

// A request with a future date was executed again after a restart. Other requests of the same time are
// executed.
func TestReplayedAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := state.NewMemory()
		h, _ := newHandlerWith(t, records)
		ahead := post(signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now().Add(50*time.Second)))
		status, said := ahead.do(t, h)
		require.Equal(t, 200, status, said)
		for range 12 { // as long as it is valid, and longer
			again, o := newHandlerWith(t, records)
			time.Sleep(10 * time.Second)
			status, said = ahead.do(t, again)
			require.Equal(t, 401, status, said)
			require.Empty(t, o.told)
			status, said = post(signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now())).do(t, again)
			require.Equal(t, 200, status, said)
		}
		n := 0
		time.Sleep(3 * time.Minute)
		post(signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now())).do(t, h)
		for _, err := range records.Each(t.Context(), "") {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 1, n, "what can't be used any more is forgotten")

		// Who remembers nothing waits instead.
		h, o := newHandlerWith(t, nil)
		time.Sleep(time.Second)
		status, said = post(signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now())).do(t, h)
		require.Equal(t, http.StatusTooEarly, status, said)
		time.Sleep(time.Minute)
		status, said = post(signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now())).do(t, h)
		require.Equal(t, 200, status, said)
		require.Len(t, o.told, 1)
	})
}

func TestMethods(t *testing.T) {
	h, o := newHandler(t)
	o.all = []rules.Rule{
		{Action: rules.Block, Subject: rules.Subject{Kind: rules.Author, Name: "aa"}, Reason: "spam"},
		{Action: rules.Allow, Subject: rules.Subject{Kind: rules.Author, Name: "bb"}},
		{Action: rules.Block, Subject: rules.Subject{Kind: rules.Event, Name: "cc"}},
		{Action: rules.Block, Subject: rules.Subject{Kind: rules.Relay, Name: "dd"}},
	}
	at := time.Now().Add(2 * time.Second)
	for body, want := range map[string]string{
		`{"method":"supportedmethods","params":[]}`:        `{"result":["allow","allowevent","allowpubkey","banpubkey","block","listallowedevents","listallowedpubkeys","listbannedevents","listbannedpubkeys","rules","supportedmethods"]}`,
		`{"method":"banpubkey","params":["aa","because"]}`: `{"result":true}`,
		`{"method":"allowpubkey","params":["aa"]}`:         `{"result":true}`,
		`{"method":"allow","params":["relay","x"]}`:        `{"result":true}`,
		`{"method":"listbannedpubkeys"}`:                   `{"result":[{"pubkey":"aa","reason":"spam"}]}`,
		`{"method":"listallowedpubkeys"}`:                  `{"result":[{"pubkey":"bb"}]}`,
		`{"method":"listbannedevents"}`:                    `{"result":[{"id":"cc"}]}`,
		`{"method":"listallowedevents"}`:                   `{"result":[]}`,
		`{"method":"grantadmin","params":["aa"]}`:          `{"error":"invalid command: \"grantadmin\""}`,
		`{"method":"banevent","params":["aa"]}`:            `{"error":"invalid command: \"banevent\""}`,
		`{"method":"block","params":[1]}`:                  `{"error":"invalid command: want {\"method\": text, \"params\": [text, ...]}"}`,
		`[]`:                                               `{"error":"invalid command: want {\"method\": text, \"params\": [text, ...]}"}`,
		``:                                                 `{"error":"invalid command: want {\"method\": text, \"params\": [text, ...]}"}`,
		`{}`:                                               `{"error":"invalid command: no method, or more than 16 params"}`,
		`{"method":"block","params":["` + strings.Repeat(`","`, 20) + `"]}`: `{"error":"invalid command: no method, or more than 16 params"}`,
	} {
		status, said := attempt{
			method: http.MethodPost, contentType: admin.ContentType + "; charset=utf-8", body: body, header: signed(t, ownerKey, relayURL, http.MethodPost, body, at),
		}.do(t, h)
		require.Equal(t, 200, status, body)
		require.JSONEq(t, want, said, body)
	}
	npub := nip34.NPub(keyOf(t, ownerKey))[:8]
	require.ElementsMatch(t, []string{
		npub + " block [author aa because]", npub + " allow [author aa]", npub + " allow [relay x]",
	}, o.told)

	_, err := admin.New(nil, admin.Config{})
	require.ErrorIs(t, err, admin.ErrConfig)
	require.ErrorContains(t, err, "operator is nil")
	require.ErrorContains(t, err, "Owners is empty")
	require.ErrorContains(t, err, "Identity and URLs are empty")
}

// The handler passes other requests to the next handler.
func TestMiddleware(t *testing.T) {
	h, _ := newHandler(t)
	site := h.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	w := httptest.NewRecorder()
	site.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	require.Equal(t, http.StatusTeapot, w.Code)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(nil))
	r.Header.Set("Content-Type", admin.ContentType)
	w = httptest.NewRecorder()
	site.ServeHTTP(w, r)
	require.Equal(t, http.StatusUnauthorized, w.Code)
}

func FuzzRequest(f *testing.F) {
	h, o := newHandler(f)
	ev := nostr.Event{Kind: 27235, CreatedAt: nostr.Now(), PubKey: keyOf(f, ownerKey).String(), Tags: nostr.Tags{{"u", relayURL}, {"method", "POST"}, {"payload", "x"}}}
	f.Add([]byte(ev.String()), []byte(body))
	f.Add([]byte(`{"tags":[["u"],[]],"kind":27235}`), []byte(`{"method":"block","params":null}`))
	f.Add([]byte(`{"id":1}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, authorization, body []byte) {
		a := post(http.Header{"Authorization": {"Nostr " + base64.StdEncoding.EncodeToString(authorization)}})
		a.body, a.remote = string(body), "127.0.0.1:1"
		if status, said := a.do(t, h); status == http.StatusOK || status >= 500 {
			t.Fatalf("%d: %s", status, said)
		}
		if len(o.told) > 0 {
			t.Fatal("obeyed")
		}
		// An owner may write any nonsense.
		a.header = signed(t, ownerKey, relayURL, http.MethodPost, string(body), time.Now().Add(2*time.Second))
		if status, said := a.do(t, h); status >= 500 && !strings.Contains(said, "too many") {
			t.Fatalf("%d: %s", status, said)
		}
		o.told = nil
	})
}

// Unknown members of an authorization event are ignored, and errors name the wrong field.
func TestCaseC2_AuthorizationWithMembersThatAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, o := newHandler(t)
		time.Sleep(time.Hour)
		good := signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now())
		data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(good.Get("Authorization"), "Nostr "))
		require.NoError(t, err)
		with := func(members string) attempt {
			return post(http.Header{"Authorization": {"Nostr " + base64.StdEncoding.EncodeToString([]byte(members+string(data[1:])))}})
		}
		status, said := with(`{"kind":27235,`).do(t, h)
		require.Equal(t, http.StatusUnauthorized, status)
		require.Contains(t, said, "kind twice")
		status, said = with(`{"seen_on":["wss://a.example",{"b":null}],"ID":1,`).do(t, h)
		require.Equal(t, http.StatusOK, status, said)
		require.Len(t, o.told, 1)
	})
}

// URLs are compared in canonical spelling, whatever the case, default port and escapes.
func TestCaseC12_URLInAnySpelling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t)
		time.Sleep(time.Hour)
		for url, want := range map[string]int{
			"HTTPS://grasp.example": 200, "Wss://GRASP.example:443/": 200, "https://grasp.example.:443/#x": 200, "HTTP://127.0.0.1:7334": 200, "http://127.0.0.1:7334/./": 200,
			"https://127.0.0.1:7334": 401, "http://127.0.0.1:7335": 401, "ftp://grasp.example": 401, "HTTPS://grasp.example/x": 401, "https://grasp.example?x": 401,
		} {
			status, said := post(signed(t, ownerKey, url, http.MethodPost, body, time.Now())).do(t, h)
			require.Equal(t, want, status, "%s: %s", url, said)
		}
		_, err := admin.New(&recorder{}, admin.Config{Owners: []graspsync.PubKey{keyOf(t, ownerKey)}, URLs: []string{"127.0.0.1:7334"}})
		require.ErrorIs(t, err, admin.ErrConfig)
		require.ErrorContains(t, err, "127.0.0.1:7334")
	})
}

// The scheme of an authorization is case-insensitive (RFC 9110, 11.1), and so is a media type.
func TestCaseC12_SchemeInAnyCase(t *testing.T) {
	synctest.Test(t, schemeInAnyCase)
}

func schemeInAnyCase(t *testing.T) {
	h, o := newHandler(t)
	time.Sleep(time.Hour)
	for _, scheme := range []string{"Nostr", "nostr", "NOSTR", "noSTR", "nostr  "} {
		good := signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now().Add(time.Duration(len(o.told))*time.Second))
		a := post(http.Header{"Authorization": {strings.Replace(good.Get("Authorization"), "Nostr", scheme, 1)}})
		a.contentType = "Application/Nostr+JSON+RPC; charset=UTF-8"
		status, said := a.do(t, h)
		require.Equal(t, http.StatusOK, status, "%s: %s", scheme, said)
	}
	for _, scheme := range []string{"Basic", "Nostrx", "", "Bearer nostr"} {
		good := signed(t, ownerKey, relayURL, http.MethodPost, body, time.Now().Add(30*time.Second))
		status, _ := post(http.Header{"Authorization": {strings.Replace(good.Get("Authorization"), "Nostr", scheme, 1)}}).do(t, h)
		require.Equal(t, http.StatusUnauthorized, status, scheme)
	}
}
