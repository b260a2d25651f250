package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// What a command printed had strangers' text in it that turns lines around on a terminal.
func TestCaseC8_CommandsPrintWhatIsPrintable(t *testing.T) {
	const odd = "é\u202e\u2066\u009b\U000e0041\x1b"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.NoError(t, json.NewEncoder(w).Encode(map[string]any{"result": map[string]string{"name": odd}}))
	}))
	defer server.Close()
	var out bytes.Buffer
	key := func(string) string { return strings.Repeat("1", 64) }
	require.NoError(t, command(t.Context(), []string{"-url", server.URL, "explain", "x"}, key, &out))
	for _, r := range out.String() {
		require.True(t, r == '\n' || unicode.IsPrint(r), "%U", r)
	}
	var said struct{ Name string }
	require.NoError(t, json.Unmarshal(out.Bytes(), &said))
	require.Equal(t, odd, said.Name)
}
