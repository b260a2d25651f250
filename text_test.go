package graspsync_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"dial tcp: refused":              "dial tcp: refused",
		`a "quoted" \n`:                  `a "quoted" \n`,
		"two\nlines\r\x00":               `two\nlines\r\x00`,
		"\x1b[31mred":                    `\x1b[31mred`,
		"\u202eright to left":            `\u202eright to left`,
		"bad \xff\xfe\x05 utf8 é 漢":      `bad \xff\xfe\x05 utf8 é 漢`,
		"\u2028":                         `\u2028`,
		"\U000e0001":                     `\U000e0001`,
		"\u3164\u115f\u2800\u034f":       `\u3164\u115f\u2800\u034f`,
		"a\ufe0f\U000e0101\u180b":        `a\ufe0f\U000e0101\u180b`,
		strings.Repeat("x", 400):         strings.Repeat("x", 300),
		strings.Repeat("é", 400):         strings.Repeat("é", 150),
		strings.Repeat("\n", 400):        strings.Repeat(`\n`, 150),
		"x" + strings.Repeat("\x01", 99): "x" + strings.Repeat(`\x01`, 74),
	} {
		assert.Equal(t, want, graspsync.Printable(in), "%q", in)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("dial tcp 192.0.2.1:443: connection refused")
	f.Add("\x1b]0;title\x07\r\n\xff\u202e")
	f.Add(strings.Repeat("漢\x00", 200))
	f.Fuzz(func(t *testing.T, s string) {
		got := graspsync.Printable(s)
		require.LessOrEqual(t, len(got), graspsync.MaxText)
		require.True(t, utf8.ValidString(got))
		for _, r := range got {
			require.True(t, graspsync.IsPrintable(r), "%q", r)
		}
		require.Equal(t, got, graspsync.Printable(got), "escaping twice changes nothing")
	})
}

// Ids and keys are hex digits in JSON.
func TestIDsInJSON(t *testing.T) {
	type both struct {
		ID  graspsync.EventID
		Key graspsync.PubKey
	}
	in := both{graspsync.EventID{1}, graspsync.PubKey{2}}
	text, err := json.Marshal(in)
	require.NoError(t, err)
	assert.JSONEq(t, `{"ID":"`+in.ID.String()+`","Key":"`+in.Key.String()+`"}`, string(text))
	var out both
	require.NoError(t, json.Unmarshal(text, &out))
	assert.Equal(t, in, out)
	require.ErrorIs(t, json.Unmarshal([]byte(`{"ID":"x"}`), &out), graspsync.ErrID)
	require.ErrorIs(t, json.Unmarshal([]byte(`{"Key":"x"}`), &out), graspsync.ErrID)
}
