package wire_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/wire"
)

// fields of a small valid event, to be changed one at a time.
func fields() map[string]string {
	return map[string]string{
		"id":         `"` + hex64 + `"`,
		"pubkey":     `"` + hex64 + `"`,
		"sig":        `"` + hex64 + hex64 + `"`,
		"created_at": "1700000000",
		"kind":       "1",
		"tags":       "[]",
		"content":    `""`,
	}
}

// frameOf writes an EVENT of fields, in the order of names.
func frameOf(f map[string]string) []byte {
	var members []string
	for _, name := range []string{"id", "pubkey", "created_at", "kind", "tags", "content", "sig", "x"} {
		if v, ok := f[name]; ok {
			members = append(members, strconv.Quote(name)+":"+v)
		}
	}
	return []byte(`["EVENT","1",{` + strings.Join(members, ",") + `}]`)
}

func parseWith(name, value string) (wire.Message, error) {
	f := fields()
	f[name] = value
	return wire.Parse(frameOf(f))
}

func TestParseEvent(t *testing.T) {
	m, err := wire.Parse([]byte(sample()))
	require.NoError(t, err)
	assert.Equal(t, wire.TypeEvent, m.Type)
	assert.Equal(t, "sub:12", m.Sub)
	assert.Equal(t, len(sample()), m.Size)
	assert.Len(t, m.Event.Tags, 8)
	assert.Equal(t, nostr.Tag{"e", hex64, "wss://relay.example.com", "root"}, m.Event.Tags[5])

	// Surplus elements are ignored.
	m, err = wire.Parse([]byte(strings.TrimSuffix(sample(), "]") + `,{"relay":[1]},2]`))
	require.NoError(t, err)
	assert.Len(t, m.Event.Tags, 8)
}

func TestParseEventLimits(t *testing.T) {
	event := func(size int) []byte {
		f := fields()
		frame := frameOf(f)
		overhead := len(`["EVENT","1",`) + 1
		f["content"] = `"` + strings.Repeat("x", size-(len(frame)-overhead)) + `"`
		return frameOf(f)
	}
	_, err := wire.Parse(event(512 << 10))
	assert.NoError(t, err)
	_, err = wire.Parse(event(512<<10 + 1))
	assert.ErrorIs(t, err, wire.ErrMalformed)
	tags := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("[],", n), ",") + "]" }
	_, err = parseWith("tags", tags(10_000))
	assert.NoError(t, err)
	_, err = parseWith("tags", tags(10_001))
	assert.ErrorIs(t, err, wire.ErrMalformed)
}

// A program in JavaScript computes the id of an event with a lone surrogate from the escape itself. An honest
// relay may have such events, so they are dropped before the id is compared.
func TestParseLoneSurrogates(t *testing.T) {
	for text, ok := range map[string]bool{
		`\ud83d\ude00`: true, `\uD83D\uDE00`: true, `\\ud800`: true, `\ufffd\ud7ff`: true, `\ud83d\ude00é\n\ud83d\ude00`: true,
		`\ud800`: false, `\udc00`: false, `\uD800x`: false, `\ud83d\ud83d\ude00`: false, `\ud83d\\ude00`: false, `\\\ud800`: false,
	} {
		for name, value := range map[string]string{"content": `"` + text + `"`, "tags": `[["` + text + `"]]`} {
			_, err := parseWith(name, value)
			assert.Equal(t, !ok, errors.Is(err, wire.ErrMalformed), "%s: %v", value, err)
		}
	}
}

// Programs differ in which of two equal keys they use.
func TestParseRepeatedKeys(t *testing.T) {
	for name, value := range fields() {
		for _, again := range []string{name, `\u00` + fmt.Sprintf("%x", name[0]) + name[1:]} {
			_, err := parseWith(name, value+`,"`+again+`":`+value)
			assert.ErrorContains(t, err, "event has "+name+" twice")
		}
	}
}

// A message owns its memory: the read buffer is used again for the next one.
func TestParseKeepsNothingOfTheBuffer(t *testing.T) {
	for _, frame := range []string{
		sample(), `["CLOSED","sub","reason"]`, `["NOTICE",{"a":"b"}]`, `["AUTH","challenge"]`, `["NEG-MSG","n","616263"]`,
		`["NEG-ERR","n","reason",5]`, `["OK","` + hex64 + `",true,"reason"]`, `["EOSE","sub",["more"]]`,
	} {
		want, err := wire.Parse([]byte(frame))
		require.NoError(t, err)
		buf := []byte(frame)
		got, err := wire.Parse(buf)
		require.NoError(t, err)
		assert.Equal(t, frame, string(buf), "the buffer was changed")
		for i := range buf {
			buf[i] = 'X'
		}
		assert.Equal(t, want, got, frame)
	}
}

// A kept message takes no more memory than its values: escapes take six times as much, and a long text is cut.
func TestParsedMessagesAreSmall(t *testing.T) {
	f := fields()
	f["content"], f["tags"] = `"`+strings.Repeat(`\u0061`, 80_000)+`"`, "["+strings.Repeat("[],", 9_999)+"[]]"
	var kept []wire.Message
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	frames := [][]byte{frameOf(f), []byte(`["NOTICE","` + strings.Repeat("x", 500_000) + `"]`)}
	before := heap()
	for range 40 {
		for _, frame := range frames {
			m, err := wire.Parse(frame)
			require.NoError(t, err)
			kept = append(kept, m)
		}
	}
	assert.Less(t, heap()-before, uint64(2*40*(80_000+24*10_000)))
	runtime.KeepAlive(kept)
	runtime.KeepAlive(frames)
}

// Real announcements and states: ids and signatures are valid only if every
// character arrives as its author wrote it.
func TestParseRealEvents(t *testing.T) {
	file, err := os.Open("testdata/real-events.jsonl")
	require.NoError(t, err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		m, err := wire.Parse(fmt.Appendf(nil, `["EVENT","1",%s]`, lines.Bytes()))
		require.NoError(t, err)
		assert.True(t, m.Event.CheckID())
		valid, err := m.Event.CheckSignature()
		assert.NoError(t, err)
		assert.True(t, valid)
		n++
	}
	require.NoError(t, lines.Err())
	assert.Equal(t, 8, n)
}

// The same bytes are the same event to us, to encoding/json and to go-nostr.
func TestParseAgreesWithOthers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		ev := randomEvent(r)
		ev.ID, ev.PubKey, ev.Sig = randomHex(r, 64), randomHex(r, 64), randomHex(r, 128)
		// go-nostr's decoder fails on unknown members that are not scalars.
		unknown := r.IntN(2) == 0
		text := spell(r, &ev, unknown)
		m, err := wire.Parse([]byte(`["EVENT","1",` + text + `]`))
		require.NoError(t, err, text)

		if !unknown {
			var theirs nostr.Event
			require.NoError(t, theirs.UnmarshalJSON([]byte(text)), text)
			require.Equal(t, theirs, *m.Event.Event, text)
		}

		naive, ok := naiveEvent([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, naive, *m.Event.Event, text)
	}
}

// naiveEvent reads an event with encoding/json alone. Keys are not looked at for
// duplicates.
func naiveEvent(text []byte) (ev nostr.Event, ok bool) {
	var raw map[string]json.RawMessage
	if json.Unmarshal(text, &raw) != nil {
		return ev, false
	}
	for name, dst := range map[string]any{
		"id": &ev.ID, "pubkey": &ev.PubKey, "created_at": &ev.CreatedAt, "kind": &ev.Kind,
		"tags": (*[][]string)(nil), "content": &ev.Content, "sig": &ev.Sig,
	} {
		if raw[name] == nil {
			return ev, false
		}
		if name == "tags" {
			var tags [][]string
			if json.Unmarshal(raw[name], &tags) != nil || tags == nil {
				return ev, false
			}
			ev.Tags = nostr.Tags{}
			for _, tag := range tags {
				ev.Tags = append(ev.Tags, tag)
			}
			continue
		}
		if json.Unmarshal(raw[name], dst) != nil {
			return ev, false
		}
	}
	return ev, true
}

func randomEvent(r *rand.Rand) nostr.Event {
	ev := nostr.Event{
		CreatedAt: nostr.Timestamp(r.Int64N(1 << uint(1+r.IntN(53)))),
		Kind:      r.IntN(65536),
		Content:   randomText(r, r.IntN(200)),
		Tags:      nostr.Tags{},
	}
	for range r.IntN(6) {
		tag := nostr.Tag{}
		for range r.IntN(5) {
			tag = append(tag, randomText(r, r.IntN(30)))
		}
		ev.Tags = append(ev.Tags, tag)
	}
	return ev
}

func randomHex(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[r.IntN(16)]
	}
	return string(b)
}

func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		switch r.IntN(8) {
		case 0:
			b.WriteRune(rune(r.IntN(0x20)))
		case 1:
			b.WriteByte(`"\/`[r.IntN(3)])
		case 2:
			b.WriteRune(rune(0x80 + r.IntN(0xD800-0x80)))
		case 3:
			b.WriteRune(rune(0xE000 + r.IntN(0x110000-0xE000)))
		default:
			b.WriteByte(byte(0x20 + r.IntN(0x60)))
		}
	}
	return b.String()
}

// spell writes an event as JSON with members in any order, any white space, any
// escapes and, if unknown is set, members that no event has.
func spell(r *rand.Rand, ev *nostr.Event, unknown bool) string {
	space := func() string { return []string{"", "", " ", "\n", "\t", " \r\n "}[r.IntN(6)] }
	var tags []string
	for _, tag := range ev.Tags {
		var values []string
		for _, v := range tag {
			values = append(values, space()+spellString(r, v)+space())
		}
		tags = append(tags, space()+"["+strings.Join(values, ",")+"]"+space())
	}
	members := []string{
		`"id":` + spellString(r, ev.ID), `"pubkey":` + space() + spellString(r, ev.PubKey),
		`"created_at":` + space() + strconv.FormatInt(int64(ev.CreatedAt), 10) + space(), `"kind"` + space() + ":" + strconv.Itoa(ev.Kind),
		`"tags":[` + strings.Join(tags, ",") + "]", `"content":` + space() + spellString(r, ev.Content), `"sig":` + spellString(r, ev.Sig),
	}
	if unknown {
		members = append(members, `"ots":{"a":[1.5e-3,true,null]}`, `"":""`)
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return space() + "{" + space() + strings.Join(members, space()+","+space()) + space() + "}" + space()
}

func spellString(r *rand.Rand, s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range s {
		short := map[rune]string{'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}[c]
		switch {
		case short != "" && r.IntN(3) > 0:
			b.WriteString(short)
		case c < ' ' || c == '"' || c == '\\' || r.IntN(4) == 0:
			format := []string{`\u%04x`, `\u%04X`}[r.IntN(2)]
			if c < 0x10000 {
				fmt.Fprintf(&b, format, c)
				continue
			}
			high, low := utf16.EncodeRune(c)
			fmt.Fprintf(&b, format+format, high, low)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
