package purgatory

import (
	"encoding/hex"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

var (
	seedKey = strings.Repeat("ab", 32)
)

// signedBy returns an event of an author with a dummy signature.
func signedBy(kind int, content string, tags ...nostr.Tag) *nostr.Event {
	ev := &nostr.Event{PubKey: seedKey, CreatedAt: 1_700_000_000, Kind: kind, Content: content, Tags: tags, Sig: strings.Repeat("0", 128)}
	ev.ID = ev.GetID()
	return ev
}

// entriesToKeep returns entries of every class.
func entriesToKeep(tb testing.TB) (out []refplan.Entry) {
	d, c := nostr.Tag{"d", "r"}, nostr.Tag{"c", strings.Repeat("1", 40)}
	a := nostr.Tag{"a", "30617:" + seedKey + ":r"}
	for _, ev := range []*nostr.Event{
		signedBy(graspsync.KindAnnouncement, "", d, nostr.Tag{"clone", "https://a.example/r.git", "https://b.example/<r>&.git"}),
		signedBy(graspsync.KindState, "", d, nostr.Tag{"HEAD", "ref: refs/heads/main"}, nostr.Tag{"refs/heads/main", strings.Repeat("1", 40)}),
		signedBy(graspsync.KindPullRequest, "a\u2028b\t\"<&>\x00\U0001F600", a, c),
		signedBy(graspsync.KindPullRequestUpdate, "", a, c),
	} {
		e, err := entryOf(eventtest.Of(ev), true)
		require.NoError(tb, err)
		out = append(out, e)
	}
	out[0].Soft = true
	for i := range out {
		out[i].Seen, out[i].Deadline = time.Unix(1_700_000_000, 5).UTC(), time.Unix(1_700_001_800, 7).UTC()
	}
	return out
}

// sameEntry checks that a decoded entry is equal in all fields.
func sameEntry(t *testing.T, want, got refplan.Entry) {
	t.Helper()
	if want.Event != nil {
		a, err := json.Marshal(want.Event)
		require.NoError(t, err)
		b, err := json.Marshal(got.Event)
		require.NoError(t, err)
		require.Equal(t, string(a), string(b))
		want.Event, got.Event = nil, nil
	}
	require.Equal(t, want, got)
}

// Encoding and decoding preserve an entry.
func TestEncodeAndDecode(t *testing.T) {
	for _, e := range entriesToKeep(t) {
		data, err := encode(e)
		require.NoError(t, err)
		got, err := decode(e.ID, data)
		require.NoError(t, err, "%s", data)
		sameEntry(t, e, got)
		// A record with another id, a truncated record, or one with trailing bytes is an error.
		_, err = decode(graspsync.EventID{9}, data)
		require.ErrorIs(t, err, errRecord)
		for n := range len(data) {
			_, err = decode(e.ID, data[:n])
			require.ErrorIs(t, err, errRecord, "%d bytes", n)
		}
		_, err = decode(e.ID, append(data, '0'))
		require.ErrorIs(t, err, errRecord)
	}
}

// FuzzDecode decodes torn or foreign records. A decoded entry must be valid, must encode to the
// same record, and must use memory in proportion to the bytes.
func FuzzDecode(f *testing.F) {
	for _, e := range entriesToKeep(f) {
		data, err := encode(e)
		require.NoError(f, err)
		f.Add(e.ID.String(), data)
		f.Add(e.ID.String(), data[:len(data)/2])
	}
	f.Add(strings.Repeat("0", 64), []byte(`{"class":1,"event":{"tags":[[[[[[`))
	f.Add(strings.Repeat("0", 64), []byte(`{"class":1,"event":{"id":"","pubkey":"","created_at":-1e99,"tags":[[]]}}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		id, err := graspsync.ParseEventID(key)
		if err != nil {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		e, err := decode(id, data)
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(100*len(data)+100_000))
		if err != nil {
			require.ErrorIs(t, err, errRecord)
			return
		}
		require.Equal(t, id, e.ID)
		require.NotEmpty(t, e.Repos)
		cfg := Config{}.withDefaults()
		p := newPendingEvents(&cfg, newReport(&cfg), nil, nil, nil, nil, nil, nil)
		now := time.Unix(1_700_000_000, 0)
		require.Empty(t, p.restore(now, e))
		due := p.due(now.Add(7 * 24 * time.Hour))
		require.NotEmpty(t, due, "it does not wait for ever")
		again, err := encode(e)
		require.NoError(t, err)
		got, err := decode(id, again)
		require.NoError(t, err)
		sameEntry(t, e, got)
	})
}

// FuzzEncode encodes events with any content, and decodes them.
func FuzzEncode(f *testing.F) {
	f.Add("hello", "r", "main", int64(1))
	f.Add("\u2028<&>\x00\x7f\"\\\n\u00e9", "a:b", "x", int64(1<<53+1))
	f.Add("", "r\u2029", "\x1f", int64(-1))
	f.Add("\xff", "r", "", int64(1))
	f.Add("\xe4", "r", "\xbd\xa0", int64(1))
	f.Fuzz(func(t *testing.T, content, identifier, value string, at int64) {
		ev := signedBy(graspsync.KindPullRequest, content, nostr.Tag{"a", "30617:" + seedKey + ":" + identifier}, nostr.Tag{"c", strings.Repeat("1", 40)}, nostr.Tag{"x", value})
		ev.CreatedAt = nostr.Timestamp(at)
		ev.ID = ev.GetID()
		e, err := entryOf(eventtest.Of(ev), false)
		if !utf8.ValidString(content) || !utf8.ValidString(value) {
			require.Error(t, err, "it could not be kept")
		}
		if err != nil {
			return
		}
		e.Seen, e.Deadline = time.Unix(1_700_000_000, 0).UTC(), time.Unix(1_700_001_800, 0).UTC()
		data, err := encode(e)
		require.NoError(t, err)
		got, err := decode(e.ID, data)
		require.NoError(t, err, "%s", hex.EncodeToString(data))
		sameEntry(t, e, got)
	})
}
