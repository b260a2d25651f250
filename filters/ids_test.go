package filters_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

const ownerHex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseEventID(t *testing.T) {
	id, err := filters.ParseEventID(ownerHex)
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
			id, err := filters.ParseEventID(s)
			require.ErrorIs(t, err, filters.ErrID)
			assert.Zero(t, id)
			key, err := filters.ParsePubKey(s)
			require.ErrorIs(t, err, filters.ErrID)
			assert.Zero(t, key)
		})
	}
}

func TestCompareAsStrings(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sign := func(n int) int { return min(max(n, -1), 1) }
	for range 500 {
		// A small alphabet makes common prefixes likely.
		var a, b filters.EventID
		for i := range a {
			a[i], b[i] = byte(rng.IntN(2)), byte(rng.IntN(2))
			if i > 5 {
				b[i] = a[i]
			}
		}
		want := strings.Compare(a.String(), b.String())
		assert.Equal(t, want, sign(a.Compare(b)))
		assert.Equal(t, want, sign(filters.PubKey(a).Compare(filters.PubKey(b))))
		ra := filters.RepoRef{Owner: filters.PubKey(a), Identifier: string(rune('a' + rng.IntN(3)))}
		rb := filters.RepoRef{Owner: filters.PubKey(b), Identifier: string(rune('a' + rng.IntN(3)))}
		assert.Equal(t, strings.Compare(ra.String(), rb.String()), sign(ra.Compare(rb)))
	}
}

func TestParseRepoRef(t *testing.T) {
	owner, err := filters.ParsePubKey(ownerHex)
	require.NoError(t, err)
	longest := strings.Repeat("x", filters.MaxIdentifier)
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
			ref, err := filters.ParseRepoRef(s)
			require.NoError(t, err)
			assert.Equal(t, filters.RepoRef{Owner: owner, Identifier: identifier}, ref)
			assert.Equal(t, s, ref.String())
			assert.Equal(t, "30618:"+ownerHex+":"+identifier, ref.Address(filters.KindState))
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
		"too long":           "30617:" + ownerHex + ":" + longest + "x",
		"not UTF-8":          "30617:" + ownerHex + ":\xff",
		"NUL":                "30617:" + ownerHex + ":a\x00b",
		"newline":            "30617:" + ownerHex + ":a\nb",
		"delete":             "30617:" + ownerHex + ":a\x7fb",
		"a space in front":   " 30617:" + ownerHex + ":x",
		"nothing but colons": ":::",
	} {
		t.Run(name, func(t *testing.T) {
			ref, err := filters.ParseRepoRef(s)
			require.ErrorIs(t, err, filters.ErrRepoRef)
			assert.True(t, ref.IsZero())
		})
	}
}

func TestParseAddress(t *testing.T) {
	for _, kind := range []int{filters.KindAnnouncement, filters.KindState} {
		want := filters.RepoRef{Owner: filters.PubKey{1}, Identifier: "x"}
		got, ref, err := filters.ParseAddress(want.Address(kind))
		require.NoError(t, err)
		assert.Equal(t, kind, got)
		assert.Equal(t, want, ref)
	}
	_, _, err := filters.ParseAddress("30617:" + ownerHex[:10] + ":x")
	require.ErrorIs(t, err, filters.ErrRepoRef)
	require.ErrorIs(t, err, filters.ErrID)
}

// An address of the longest identifier is exactly what relays take in one value.
func TestMaxIdentifierFillsValue(t *testing.T) {
	ref := filters.RepoRef{Identifier: strings.Repeat("x", filters.MaxIdentifier)}
	assert.Len(t, ref.String(), 255)
}

// Elsewhere an identifier was cut at its first colon, so the repository was never
// found.
func TestTrapD4_IdentifierWithColons(t *testing.T) {
	for _, identifier := range []string{":", "a:b", "a:b:c", "::a", "30617:" + ownerHex + ":x", "https://x.org/y"} {
		want := filters.RepoRef{Owner: filters.PubKey{7}, Identifier: identifier}
		got, err := filters.ParseRepoRef(want.String())
		require.NoError(t, err)
		assert.Equal(t, want, got)
		kind, state, err := filters.ParseAddress(want.Address(filters.KindState))
		require.NoError(t, err)
		assert.Equal(t, filters.KindState, kind)
		assert.Equal(t, want, state)
		for _, f := range filters.Repos([]filters.RepoRef{want}) {
			assert.Contains(t, values(f), want.String())
		}
	}
}

func FuzzParseEventID(f *testing.F) {
	f.Add(ownerHex)
	f.Add(strings.ToUpper(ownerHex))
	f.Add("")
	f.Add(ownerHex + ":")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := filters.ParseEventID(s)
		if err != nil {
			require.ErrorIs(t, err, filters.ErrID)
			require.Zero(t, id)
			return
		}
		require.Equal(t, s, id.String())
		key, err := filters.ParsePubKey(s)
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
		ref, err := filters.ParseRepoRef(s)
		kind, address, errAddress := filters.ParseAddress(s)
		if err != nil {
			require.ErrorIs(t, err, filters.ErrRepoRef)
			require.True(t, ref.IsZero())
			if errAddress == nil {
				require.Equal(t, filters.KindState, kind)
				require.Equal(t, s, address.Address(kind))
			}
			return
		}
		require.NoError(t, errAddress)
		require.Equal(t, ref, address)
		require.Equal(t, s, ref.String())
		require.LessOrEqual(t, len(s), 255)
		require.NoError(t, filters.CheckIdentifier(ref.Identifier))
	})
}

// An address says what is wrong with it.
func TestParseAddressSaysWhy(t *testing.T) {
	owner := strings.Repeat("a", 64)
	for in, want := range map[string]string{
		"": "kind", "30617": "kind", "30619:" + owner + ":x": "kind", "30617:" + owner: "two colons are needed",
		"30618:short:x": "owner: ", "30617:" + owner + ":": "identifier",
	} {
		_, _, err := filters.ParseAddress(in)
		require.ErrorIs(t, err, filters.ErrRepoRef, in)
		require.ErrorContains(t, err, want, in)
	}
}
