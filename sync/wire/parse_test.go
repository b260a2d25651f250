package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/wire"
)

var hex64 = strings.Repeat("0123456789abcdef", 4)

func TestParseMessages(t *testing.T) {
	id, err := graspsync.ParseEventID(hex64)
	require.NoError(t, err)
	tests := []struct {
		frame string
		want  wire.Message
	}{
		{`["EOSE","1"]`, wire.Message{Type: wire.TypeEOSE, Sub: "1"}},
		{" [ \"EOSE\"\t,\r\n\"1\" ] ", wire.Message{Type: wire.TypeEOSE, Sub: "1"}},
		{`["\u0045OSE","\u0031"]`, wire.Message{Type: wire.TypeEOSE, Sub: "1"}},
		{`["EOSE",""]`, wire.Message{Type: wire.TypeEOSE}},
		{`["EOSE","` + strings.Repeat("s", 64) + `"]`, wire.Message{Type: wire.TypeEOSE, Sub: strings.Repeat("s", 64)}},

		// NIP-67.
		{`["EOSE","1",["finish"]]`, wire.Message{Type: wire.TypeEOSE, Sub: "1", Hint: wire.HintFinish}},
		{`["EOSE","1",["more"]]`, wire.Message{Type: wire.TypeEOSE, Sub: "1", Hint: wire.HintMore}},
		{`["EOSE","1",[]]`, wire.Message{Type: wire.TypeEOSE, Sub: "1"}},
		{`["EOSE","1",["new",7,{"finish":1},["finish"],"finish"]]`, wire.Message{Type: wire.TypeEOSE, Sub: "1", Hint: wire.HintFinish}},
		{`["EOSE","1",["finish","more"]]`, wire.Message{Type: wire.TypeEOSE, Sub: "1", Hint: wire.HintMore}},
		{`["EOSE","1",["more","finish"]]`, wire.Message{Type: wire.TypeEOSE, Sub: "1", Hint: wire.HintMore}},
		{`["EOSE","1",["Finish","finished","finish "]]`, wire.Message{Type: wire.TypeEOSE, Sub: "1"}},
		{`["EOSE","1","finish"]`, wire.Message{Type: wire.TypeEOSE, Sub: "1"}},
		{`["EOSE","1",null]`, wire.Message{Type: wire.TypeEOSE, Sub: "1"}},
		{`["EOSE","1",["finish"],{"a":[1]}]`, wire.Message{Type: wire.TypeEOSE, Sub: "1", Hint: wire.HintFinish}},

		{`["CLOSED","1","blocked: \"no\"\n"]`, wire.Message{Type: wire.TypeClosed, Sub: "1", Text: "blocked: \"no\"\n"}},
		{`["CLOSED","1"]`, wire.Message{Type: wire.TypeClosed, Sub: "1"}},
		{`["CLOSED","1",null]`, wire.Message{Type: wire.TypeClosed, Sub: "1", Text: "null"}},

		{`["NOTICE","hello"]`, wire.Message{Type: wire.TypeNotice, Text: "hello"}},
		{`["NOTICE"]`, wire.Message{Type: wire.TypeNotice}},
		{`["NOTICE",{"code": 7}]`, wire.Message{Type: wire.TypeNotice, Text: `{"code": 7}`}},
		{`["NOTICE",["a",true,-1.5e+3],"rest"]`, wire.Message{Type: wire.TypeNotice, Text: `["a",true,-1.5e+3]`}},
		{`["NOTICE","` + strings.Repeat("x", 400) + `"]`, wire.Message{Type: wire.TypeNotice, Text: strings.Repeat("x", 300)}},
		{`["NOTICE","` + strings.Repeat("x", 299) + `é"]`, wire.Message{Type: wire.TypeNotice, Text: strings.Repeat("x", 299)}},
		{`["NOTICE",["` + strings.Repeat("é", 200) + `"]]`, wire.Message{Type: wire.TypeNotice, Text: `["` + strings.Repeat("é", 149)}},
		{`["NOTICE","\ud83d\ude00 \ud83d"]`, wire.Message{Type: wire.TypeNotice, Text: "😀 �"}},
		{`["NOTICE","\u0041 \q"]`, wire.Message{Type: wire.TypeNotice, Text: `\u0041 \q`}},
		{"[\"NOTICE\",\"a\xff\nb\x00\"]", wire.Message{Type: wire.TypeNotice, Text: "a�\nb\x00"}},
		{"[\"NOTICE\",[\"\xff\"]]", wire.Message{Type: wire.TypeNotice, Text: `["�"]`}},

		{`["OK","` + hex64 + `",true,"duplicate: here"]`, wire.Message{Type: wire.TypeOK, ID: id, Accepted: true, Text: "duplicate: here"}},
		{`["OK","` + hex64 + `",false]`, wire.Message{Type: wire.TypeOK, ID: id}},

		{`["AUTH","challenge"]`, wire.Message{Type: wire.TypeAuth, Text: "challenge"}},
		{`["AUTH","` + strings.Repeat("x", 300) + `"]`, wire.Message{Type: wire.TypeAuth, Text: strings.Repeat("x", 300)}},

		{`["NEG-MSG","n","61aFfF00"]`, wire.Message{Type: wire.TypeNegMsg, Sub: "n", Payload: []byte{0x61, 0xaf, 0xff, 0}}},
		{`["NEG-MSG","n","\u00361"]`, wire.Message{Type: wire.TypeNegMsg, Sub: "n", Payload: []byte{0x61}}},
		{`["NEG-MSG","n",""]`, wire.Message{Type: wire.TypeNegMsg, Sub: "n", Payload: []byte{}}},

		{`["NEG-ERR","n","closed: gone"]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "closed: gone"}},
		{`["NEG-ERROR","n","CLOSED"]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "CLOSED"}},
		{`["NEG-ERR","n"]`, wire.Message{Type: wire.TypeNegErr, Sub: "n"}},
		{`["NEG-ERR","n","blocked: big",1000000]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: big", Max: 1000000}},
		{`["NEG-ERR","n","blocked: big","500"]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: big", Max: 500}},
		{`["NEG-ERR","n","blocked: big",-5]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: big"}},
		{`["NEG-ERR","n","blocked: big",1e9]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: big"}},
		{`["NEG-ERR","n","blocked: big",99999999999999999999]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: big"}},
		{`["NEG-ERR","n","blocked: big",123456789012345678901234567890]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: big"}},
		{`["NEG-ERR","n","blocked: big",{"max":5},null]`, wire.Message{Type: wire.TypeNegErr, Sub: "n", Text: "blocked: big"}},
	}
	for _, tt := range tests {
		tt.want.Size = len(tt.frame)
		got, err := wire.Parse([]byte(tt.frame))
		if assert.NoError(t, err, "%s", tt.frame) {
			assert.Equal(t, tt.want, got, "%s", tt.frame)
		}
	}
}

func TestParseMalformed(t *testing.T) {
	long := strings.Repeat("s", 65)
	frames := []string{
		"", " ", "\x00", "null", "7", `"EVENT"`, "{}", "[", "[]", "[ ", "[1]", "[null]", "[[", `["`, `["EOSE`, `["EOSE"`,
		`["EOSE"]`, `["EOSE",`, `["EOSE",]`, `["EOSE","1"`, `["EOSE","1",]`, `["EOSE","1",,]`, `["EOSE" "1"]`,
		`["EOSE",1]`, `["EOSE",null]`, `["EOSE","` + long + `"]`, `["EOSE","1"]]`, `["EOSE","1"]x`, `["EOSE","1"] []`,
		"[\"EOSE\",\"1\"]\x00", "\xef\xbb\xbf" + `["EOSE","1"]`, `['EOSE','1']`, `["EOSE","1"}`, `["EOSE":"1"]`,
		"[\"EOSE\",\"\xff\"]", "[\"EOSE\",\"\xed\xa0\x80\"]",
		`["EOSE","\x"]`, `["EOSE","\u12g4"]`, `["EOSE","\u12`, `["EOSE","\`, `["EOSE","\"]`,
		`["EOSE","1",[}`, `["EOSE","1",["finish"`, `["EOSE","1",["finish" "more"]]`, `["EOSE","1",["finish",]]`,
		`["EOSE","1",["fin`, `["EOSE","1",[nul]]`, `["EOSE","1",truex]`, `["EOSE","1",tru`, `["EOSE","1",[01]]`,
		`["EOSE","1",.5]`, `["EOSE","1",1a]`, `["EOSE","1",--1]`,
		`["EOSE","1",+1]`, `["EOSE","1",1.2.3]`, `["EOSE","1",{]`, `["EOSE","1",{"a"}]`, `["EOSE","1",{"a":}]`,
		`["EOSE","1",{"a":1,}]`, `["EOSE","1",{a:1}]`, `["EOSE","1",{1:1}]`, `["EOSE","1",{"a":1 "b":2}]`, `["EOSE","1",{"a:1}]`,
		`["CLOSED"]`, `["CLOSED",{}]`, `["CLOSED","1","x]`, `["CLOSED","1","x\"]`, `["CLOSED","1",]`, `["CLOSED","1",x]`,
		`["NOTICE",]`, `["NOTICE","a"`, `["NOTICE","a`, `["NOTICE",nope]`, `["NOTICE" "a"]`,
		`["OK"]`, `["OK","` + hex64 + `"]`, `["OK","` + hex64 + `",]`, `["OK","` + hex64 + `",1]`, `["OK","` + hex64 + `","true"]`,
		`["OK","` + hex64 + `",trueish]`, `["OK","` + hex64[1:] + `",true]`, `["OK","` + strings.ToUpper(hex64) + `",true]`,
		`["OK",7,true]`, `["OK","",false,"bad"]`,
		`["AUTH"]`, `["AUTH",""]`, `["AUTH",7]`, `["AUTH","` + strings.Repeat("x", 301) + `"]`, `["AUTH",{"kind":22242}]`,
		`["NEG-MSG"]`, `["NEG-MSG","n"]`, `["NEG-MSG","n",]`, `["NEG-MSG","n",61]`, `["NEG-MSG","n","6"]`, `["NEG-MSG","n","6x"]`,
		`["NEG-MSG","n","61`, `["NEG-MSG","n","é"]`, `["NEG-MSG","n","\u00361`, `["NEG-MSG",1,"61"]`,
		`["NEG-ERR"]`, `["NEG-ERR",1]`, `["NEG-ERR","n",]`, `["NEG-ERR","n","x",]`, `["NEG-ERR","n","x",1 2]`, `["NEG-ERR","n","x",nan]`,
	}
	for _, frame := range frames {
		m, err := wire.Parse([]byte(frame))
		assert.ErrorIs(t, err, wire.ErrMalformed, "%q", frame)
		assert.Zero(t, m, "%q", frame)
		if err != nil {
			assert.Less(t, len(err.Error()), 200, "%q", frame)
		}
	}
}

// A go-nostr client that gets this frame, in any state, dies of a slice bounds
// panic in a goroutine of its own.
func TestField23_ElevenByteFrame(t *testing.T) {
	_, err := wire.Parse([]byte(`["EVENT","`))
	assert.ErrorIs(t, err, wire.ErrMalformed)
}

// Helpers that look for a key and take the next 64 bytes, or cut a label out
// between fixed offsets, panic on these.
func TestField23_ShortAndOddFrames(t *testing.T) {
	for _, frame := range []string{
		`["EVENT","1:",{"id":"ab"}]`, `["EVENT","1:",{"id":"`, `["EVENT","1:",{"id"`, `"EVENT""1:"`, `"EVENT"`, `,"x"`, `,`, `[,`, `["`,
		`["NEG-MSG","61`, `["NEG-MSG"`, `["EVENT",["d"`, `["EVENT","1:",{"tags":[["d"`, `["EVENT","1:",{"created_at":`,
	} {
		for end := range len(frame) + 1 {
			_, err := wire.Parse([]byte(frame[:end]))
			assert.ErrorIs(t, err, wire.ErrMalformed, "%s", frame[:end])
		}
	}
}
