package graspsync_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// A clone URL is http or https, has one canonical spelling, and can parse it.
func TestCloneURL(t *testing.T) {
	u, err := graspsync.ParseCloneURL("HTTP://Git.Example.com:8080/Path/repo.git/")
	require.NoError(t, err)
	assert.Equal(t, "http://git.example.com:8080/Path/repo.git", u.String())
	assert.Equal(t, graspsync.HostPort{Host: "git.example.com", Port: 8080}, u.HostPort())
	assert.Equal(t, "/Path/repo.git", u.Path())
	assert.Equal(t, u.String(), u.URL().String())
	assert.True(t, u.Plaintext())
	assert.False(t, u.IsZero())
	for _, s := range []string{"ws://git.example.com/x", "ssh://git@git.example.com/x", "git.example.com:x", ""} {
		_, err := graspsync.ParseCloneURL(s)
		require.ErrorIs(t, err, graspsync.ErrURL, s)
	}

	var zero graspsync.CloneURL
	assert.True(t, zero.IsZero())
	assert.Empty(t, zero.String())
	assert.Negative(t, zero.Compare(u))
	assert.Zero(t, u.Compare(u))

	var got struct{ A, B graspsync.CloneURL }
	require.NoError(t, json.Unmarshal([]byte(`{"A":"https://Git.Example.com:443/x","B":""}`), &got))
	assert.True(t, got.B.IsZero())
	assert.False(t, got.A.Plaintext())
	text, err := json.Marshal(map[graspsync.CloneURL]int{got.A: 1})
	require.NoError(t, err)
	assert.JSONEq(t, `{"https://git.example.com/x":1}`, string(text))
	before := got.A
	require.ErrorIs(t, got.A.UnmarshalText([]byte("ftp://x.org")), graspsync.ErrURL)
	assert.Equal(t, before, got.A)
	require.NoError(t, got.A.UnmarshalText(nil))
	assert.True(t, got.A.IsZero())
}
