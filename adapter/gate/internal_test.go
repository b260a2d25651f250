package gate

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// What passes is a message that begins as it says, with a name of ours.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`["EVENT",{}]`, `["REQ","x",{},{"kinds":[1]}]`, `["CLOSE","x"]`, `["COUNT","x",{}]`, `["NEG-OPEN","x",{},"6100000200"]`,
		`["NEG-MSG","x","61"]`, `["NEG-CLOSE","x"]`, `["AUTH",{}]`, `[ "REQ" , "\u0000" , {}]`, `,""`, `[[[[`,
	} {
		f.Add([]byte(seed))
	}
	g := New(nil, Config{})
	f.Fuzz(func(t *testing.T, message []byte) {
		r, answer := g.parse(message)
		var parts []json.RawMessage
		if answer != nil {
			require.NoError(t, json.Unmarshal(answer, &parts), "%s", answer)
			return
		}
		out := r.as(7)
		require.NoError(t, json.Unmarshal(out, &parts), "%s", out)
		require.True(t, bytes.HasPrefix(out, []byte(`["`+r.label+`",`)))
		if r.name != nil {
			require.Equal(t, `"7"`, string(parts[1]))
		}
	})
}

// What the relay answers goes to whom it is for under their name.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`["EVENT","7",{"id":"x"}]`, `["EOSE","7"]`, `["CLOSED","7","x"]`, `["OK","7",true,""]`, `["NOTICE","7"]`, `["NEG-MSG", "7","61"]`, `["EVENT"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		a := readAnswer(message)
		var before, after []json.RawMessage
		if a.number == 0 || json.Unmarshal(message, &before) != nil {
			return
		}
		require.NoError(t, json.Unmarshal(a.as([]byte(`"n"`)), &after))
		require.Equal(t, `"n"`, string(after[1]))
		require.Equal(t, before[2:], after[2:])
	})
}

func TestAddress(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8:1:2:3::1%eth0]:80": "2001:db8:1:2::/64", "pipe": "pipe",
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.RemoteAddr = from
		require.Equal(t, want, Address(r), from)
	}
}

// What hears of an event is what go-nostr says that matches it.
func TestMatches(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	some := func(most int) (out []string) {
		for range rng.IntN(most) {
			out = append(out, string(rune('a'+rng.IntN(6))))
		}
		return out
	}
	at := func() *nostr.Timestamp {
		if rng.IntN(2) == 0 {
			return nil
		}
		n := nostr.Timestamp(rng.IntN(4))
		return &n
	}
	matched := 0
	for range 20_000 {
		e := &nostr.Event{ID: "a", PubKey: "b", Kind: rng.IntN(2), CreatedAt: nostr.Timestamp(rng.IntN(4))}
		for range rng.IntN(12) {
			e.Tags = append(e.Tags, append(nostr.Tag{[]string{"e", "p"}[rng.IntN(2)]}, some(3)...))
		}
		f := nostr.Filter{Since: at(), Until: at(), Tags: nostr.TagMap{"e": some(9)}}
		switch rng.IntN(6) {
		case 0:
			f.IDs = some(9)
		case 1:
			f.Authors = some(9)
		case 2:
			f.Kinds = []int{1, 0, 1}[rng.IntN(3):]
		case 3:
			f.Tags["p"] = []string{}
		case 4:
			f.Tags["p"] = some(3)
		}
		want := f.Matches(e)
		require.Equal(t, want, newLiveEvent(e).matches(sortedFilter(f)), "%v %v", f, e)
		if want {
			matched++
		}
	}
	require.Greater(t, matched, 1000)
}
