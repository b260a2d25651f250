package graspsync

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// What reaches a resolver is judged by us as well, whatever the IDNA profile lets pass.
func TestWellFormed(t *testing.T) {
	for _, good := range []string{"a", "a.b", "0", "a-b", "xn--bcher-kva.example", strings.Repeat("a", 63), strings.Repeat("a.", 126) + "a"} {
		assert.True(t, wellFormed(good), good)
	}
	for _, bad := range []string{
		"", ".", "a.", ".a", "a..b", "-a", "a-", "-", "a.-b", "a.b-", "-a.b", "a_b", "a b", "a/b", "a\x00", "A", "\u00e4",
		strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a",
	} {
		assert.False(t, wellFormed(bad), "%q", bad)
	}
}
