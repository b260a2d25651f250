package graspsync_test

import (
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

func TestParseAddress(t *testing.T) {
	author := graspsync.PubKey{1}
	k := author.String()
	for s, want := range map[string]graspsync.Address{
		"30617:" + k + ":x":    {Kind: 30617, Author: graspsync.PubKey{1}, Identifier: "x"},
		"30618:" + k + ":x:y":  {Kind: 30618, Author: graspsync.PubKey{1}, Identifier: "x:y"},
		"0:" + k + ":":         {Kind: 0, Author: graspsync.PubKey{1}, Identifier: ""},
		"30023:" + k + ":a\nb": {Kind: 30023, Author: graspsync.PubKey{1}, Identifier: "a\nb"},
		"65535:" + k + "::":    {Kind: 65535, Author: graspsync.PubKey{1}, Identifier: ":"},
	} {
		a, err := graspsync.ParseAddress(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, a)
		ref, ok := a.Repo()
		assert.Equal(t, a.Kind == 30617 || a.Kind == 30618, ok)
		assert.Equal(t, !ok, ref.IsZero())
	}
	for _, s := range []string{
		"", ":", "::", "30617", "30617:" + k,
		"x:" + k + ":x", "-1:" + k + ":x", "65536:" + k + ":x", "+1:" + k + ":x", "30617:" + k[1:] + ":x",
		"30617::x", "030617:" + k + ":x",
	} {
		_, err := graspsync.ParseAddress(s)
		require.ErrorIs(t, err, graspsync.ErrAddress, "%q", s)
	}
	for _, identifier := range []string{"", strings.Repeat("x", 300), "a\nb"} {
		a, err := graspsync.ParseAddress("30617:" + k + ":" + identifier)
		require.NoError(t, err)
		assert.Equal(t, identifier, a.Identifier)
		_, ok := a.Repo()
		assert.False(t, ok, "%q is no repository's", identifier)
	}
}

func TestAddressOf(t *testing.T) {
	author := graspsync.PubKey{1}.String()
	for kind, want := range map[int]string{30617: "30617:" + author + ":x:y", 10002: "10002:" + author + ":", 0: "0:" + author + ":"} {
		a, ok := eventtest.Of(&nostr.Event{Kind: kind, PubKey: author, Tags: nostr.Tags{{"d", "x:y"}}}).Address()
		require.True(t, ok)
		assert.Equal(t, want, a.String())
		parsed, err := graspsync.ParseAddress(want)
		require.NoError(t, err)
		assert.Equal(t, a, parsed)
	}
	_, ok := eventtest.Of(&nostr.Event{Kind: 1, PubKey: author}).Address()
	assert.False(t, ok)
	for _, bad := range []string{"", "1", "1:a", "01:" + author + ":", "+1:" + author + ":", "x:" + author + ":", "70000:" + author + ":", "1:a:"} {
		_, err := graspsync.ParseAddress(bad)
		assert.Error(t, err, bad)
	}
}
