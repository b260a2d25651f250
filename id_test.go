package graspsync_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

const ownerHex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseEventID(t *testing.T) {
	id, err := graspsync.ParseEventID(ownerHex)
	require.NoError(t, err)
	assert.Equal(t, ownerHex, id.String())
	assert.Equal(t, byte(0x01), id[0])
	assert.Equal(t, byte(0xef), id[31])

	for name, s := range map[string]string{
		"empty":      "",
		"short":      ownerHex[:63],
		"long":       ownerHex + "0",
		"upper case": strings.ToUpper(ownerHex),
		"not hex":    ownerHex[:63] + "g",
		"first half": "g" + ownerHex[1:],
		"unicode":    strings.Repeat("é", 32),
		"below 0":    ownerHex[:63] + "/",
		"above 9":    ownerHex[:63] + ":",
		"below a":    ownerHex[:63] + "`",
		"whitespace": " " + ownerHex[:63],
	} {
		t.Run(name, func(t *testing.T) {
			id, err := graspsync.ParseEventID(s)
			require.ErrorIs(t, err, graspsync.ErrID)
			assert.Zero(t, id)
			key, err := graspsync.ParsePubKey(s)
			require.ErrorIs(t, err, graspsync.ErrID)
			assert.Zero(t, key)
		})
	}
}

func TestParseRepoRef(t *testing.T) {
	owner, err := graspsync.ParsePubKey(ownerHex)
	require.NoError(t, err)
	longest := strings.Repeat("x", graspsync.MaxIdentifier)
	for name, identifier := range map[string]string{
		"plain":   "graspsync",
		"unicode": "gräsp-同期",
		"spaces":  " a b ",
		"quotes":  `a"b\c`,
		"slashes": "../etc",
		"longest": longest,
		"a digit": "1",
	} {
		t.Run(name, func(t *testing.T) {
			s := "30617:" + ownerHex + ":" + identifier
			ref, err := graspsync.ParseRepoRef(s)
			require.NoError(t, err)
			assert.Equal(t, graspsync.RepoRef{Owner: owner, Identifier: identifier}, ref)
			assert.Equal(t, s, ref.String())
			assert.Equal(t, "30618:"+ownerHex+":"+identifier, ref.Address(graspsync.KindState))
			assert.False(t, ref.IsZero())
		})
	}
	for name, s := range map[string]string{
		"empty":              "",
		"no colon":           "30617",
		"one colon":          "30617:" + ownerHex,
		"no identifier":      "30617:" + ownerHex + ":",
		"state":              "30618:" + ownerHex + ":x",
		"other kind":         "30023:" + ownerHex + ":x",
		"kind with zero":     "030617:" + ownerHex + ":x",
		"kind with plus":     "+30617:" + ownerHex + ":x",
		"short owner":        "30617:" + ownerHex[1:] + ":x",
		"upper-case owner":   "30617:" + strings.ToUpper(ownerHex) + ":x",
		"zero owner":         "30617:" + strings.Repeat("0", 64) + ":x",
		"too long":           "30617:" + ownerHex + ":" + longest + "x",
		"not UTF-8":          "30617:" + ownerHex + ":\xff",
		"NUL":                "30617:" + ownerHex + ":a\x00b",
		"newline":            "30617:" + ownerHex + ":a\nb",
		"delete":             "30617:" + ownerHex + ":a\x7fb",
		"a space in front":   " 30617:" + ownerHex + ":x",
		"nothing but colons": ":::",
	} {
		t.Run(name, func(t *testing.T) {
			ref, err := graspsync.ParseRepoRef(s)
			require.ErrorIs(t, err, graspsync.ErrRepoRef)
			assert.True(t, ref.IsZero())
		})
	}
}

// Another server cut identifiers at the first colon, so the repository was never found.
func TestTrapD4_IdentifierWithColons(t *testing.T) {
	for _, identifier := range []string{":", "a:b", "a:b:c", "::a", "30617:" + ownerHex + ":x", "https://x.org/y"} {
		want := graspsync.RepoRef{Owner: graspsync.PubKey{7}, Identifier: identifier}
		got, err := graspsync.ParseRepoRef(want.String())
		require.NoError(t, err)
		assert.Equal(t, want, got)
		a, err := graspsync.ParseAddress(want.Address(graspsync.KindState))
		require.NoError(t, err)
		state, ok := a.Repo()
		assert.True(t, ok)
		assert.Equal(t, graspsync.KindState, a.Kind)
		assert.Equal(t, want, state)
	}
}

func FuzzParseEventID(f *testing.F) {
	f.Add(ownerHex)
	f.Add(strings.ToUpper(ownerHex))
	f.Add("")
	f.Add(ownerHex + ":")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := graspsync.ParseEventID(s)
		if err != nil {
			require.ErrorIs(t, err, graspsync.ErrID)
			require.Zero(t, id)
			return
		}
		require.Equal(t, s, id.String())
		key, err := graspsync.ParsePubKey(s)
		require.NoError(t, err)
		require.Equal(t, s, key.String())
	})
}

func FuzzParseRepoRef(f *testing.F) {
	f.Add("30617:" + ownerHex + ":graspsync")
	f.Add("30617:" + ownerHex + ":a:b")
	f.Add("30618:" + ownerHex + ":x")
	f.Add("30617::")
	f.Add("30617:" + ownerHex + ":\x00")
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := graspsync.ParseRepoRef(s)
		a, errAddress := graspsync.ParseAddress(s)
		repo, ok := a.Repo()
		if err != nil {
			require.ErrorIs(t, err, graspsync.ErrRepoRef)
			require.True(t, ref.IsZero())
			require.False(t, ok && a.Kind == graspsync.KindAnnouncement)
			if errAddress == nil {
				require.Equal(t, s, a.String())
			}
			return
		}
		require.NoError(t, errAddress)
		require.True(t, ok)
		require.Equal(t, ref, repo)
		require.Equal(t, s, ref.String())
		require.LessOrEqual(t, len(s), 255)
		require.NoError(t, graspsync.CheckIdentifier(ref.Identifier))
	})
}
