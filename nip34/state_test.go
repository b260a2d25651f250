package nip34

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

const (
	sha1   = "fd4fd997ab0c671ad1eb5218f7d37e7fdc6f9e96"
	sha256 = "fd4fd997ab0c671ad1eb5218f7d37e7fdc6f9e96000000000000000000000000"
)

func TestParseState(t *testing.T) {
	s, err := ParseState(eventtest.Of(event(graspsync.KindState, key(1),
		nostr.Tag{}, nostr.Tag{"d", "x:y"},
		nostr.Tag{"HEAD", "ref: refs/heads/main"},
		nostr.Tag{"HEAD", "ref: refs/heads/later"},
		nostr.Tag{"refs/heads/main", sha1, "0123"},
		nostr.Tag{"refs/heads/main", sha256},
		nostr.Tag{"refs/tags/v1", sha256},
		nostr.Tag{"refs/tags/v1^{}", sha1},
		nostr.Tag{"refs/heads/sym", "ref: refs/heads/main"},
		nostr.Tag{"refs/nostr/" + eventID(1).String(), sha1},
		nostr.Tag{"heads/other", sha1},
	)))
	require.NoError(t, err)
	assert.Equal(t, graspsync.RepoRef{Owner: key(1), Identifier: "x:y"}, s.Ref)
	assert.Equal(t, graspsync.EventKey{CreatedAt: 100, ID: eventID(7)}, s.Key())
	assert.Equal(t, RefName{"refs/heads/main"}, s.HEAD)
	assert.Equal(t, map[RefName]ObjectID{{"refs/heads/main"}: {sha1}, {"refs/tags/v1"}: {sha256}}, s.Refs)
}

// A state without refs means an empty repository. A parser that requires refs would ignore the deletion
// of all refs.
func TestParseStateWithoutRefs(t *testing.T) {
	s, err := ParseState(eventtest.Of(event(graspsync.KindState, key(1), nostr.Tag{"d", "x"})))
	require.NoError(t, err)
	assert.Empty(t, s.Refs)
	assert.NotNil(t, s.Refs)
	assert.True(t, s.HEAD.IsZero())
}

// Peeled tags and symbolic values were taken for objects.
func TestTrapG10_NotObjects(t *testing.T) {
	s, err := ParseState(eventtest.Of(event(graspsync.KindState, key(1), nostr.Tag{"d", "x"},
		nostr.Tag{"refs/tags/v1^{}", sha1}, nostr.Tag{"refs/heads/main", "ref: refs/heads/x"})))
	require.NoError(t, err)
	assert.Empty(t, s.Refs)
}

// A branch or tag that could not be read was left out of the state, and therefore deleted.
func TestUnreadableRefsAreRefused(t *testing.T) {
	for _, tag := range []nostr.Tag{
		{"refs/heads/main"}, {"refs/tags/v1"}, {"refs/heads/main", ""}, {"refs/heads/main", "abc"}, {"refs/heads/main", "abc12g"},
		{"refs/heads/main", strings.ToUpper(sha1)}, {"refs/heads/main", sha1 + " "}, {"refs/heads/main", strings.Repeat("0", 40)},
		{"refs/tags/v1", strings.Repeat("0", 64)}, {"refs/heads/", sha1}, {"refs/heads/main ", sha1}, {"refs/heads/a..b", sha1},
		{"refs/heads/a\x1b", sha1}, {"refs/heads/a.lock", "ref: refs/heads/x"}, {"refs/heads/" + strings.Repeat("n", 251), sha1},
		{"refs/heads/" + strings.Repeat("n/", 520) + "n", sha1},
	} {
		_, err := ParseState(eventtest.Of(event(graspsync.KindState, key(1), nostr.Tag{"d", "x"}, nostr.Tag{"refs/heads/other", sha1}, tag)))
		require.ErrorIs(t, err, ErrInvalid, "%q", tag)
	}
	s, err := ParseState(eventtest.Of(event(graspsync.KindState, key(1), nostr.Tag{"d", "x"}, nostr.Tag{"refs/heads/main", sha1, "parent", ""},
		nostr.Tag{"refs/heads/main", "again"}, nostr.Tag{"refs/notes/a b"}, nostr.Tag{"refs/pull/1/head", "x"}, nostr.Tag{"refs/heads"},
		nostr.Tag{"refs/nostr/" + eventID(1).String(), "x"}, nostr.Tag{"refs/tags/v1^{}", "x"}, nostr.Tag{"HEAD"})))
	require.NoError(t, err, "these say nothing about a branch or a tag")
	require.Len(t, s.Refs, 1)
	require.False(t, s.Abbreviated)
}

func TestAbbreviatedObjectID(t *testing.T) {
	for _, value := range []string{"abc1", "abc123", sha1[1:]} {
		s, err := ParseState(eventtest.Of(event(graspsync.KindState, key(1), nostr.Tag{"d", "x"}, nostr.Tag{"refs/tags/v1", sha1}, nostr.Tag{"refs/heads/main", value})))
		require.NoError(t, err)
		require.True(t, s.Abbreviated)
		require.Len(t, s.Refs, 1)
	}
}

// Another server passed values to the command line of git without a check.
func TestTrapG1_NoOptionsNoRefspecs(t *testing.T) {
	for _, value := range []string{
		"--depth=1", "+refs/heads/x:refs/heads/main", "", strings.ToUpper(sha1), sha1[1:], sha1 + "0",
		sha256 + "0", sha1 + " ", sha1[:39] + "g", strings.Repeat("\n", 40),
	} {
		require.Error(t, parseErr(ParseObjectID(value)), "%q", value)
	}
	require.NoError(t, parseErr(ParseObjectID(sha1)))
	require.NoError(t, parseErr(ParseObjectID(sha256)))
}

func TestHEAD(t *testing.T) {
	for value, want := range map[string]string{
		"ref: refs/heads/a/b":      "refs/heads/a/b",
		"ref: refs/heads/":         "",
		"ref: refs/tags/v1":        "",
		"ref: refs/heads/a..b":     "",
		"ref:refs/heads/main":      "",
		"refs/heads/main":          "refs/heads/main", // as several clients write it
		"refs/heads/":              "",
		"refs/tags/v1":             "",
		"refs/heads/a..b":          "",
		"main":                     "",
		"ref: ref: refs/heads/x":   "",
		sha1:                       "",
		"":                         "",
		"ref: refs/heads/a\nevil":  "",
		"ref: refs/heads/ref: x":   "",
		"ref: refs/heads/--upload": "refs/heads/--upload",
	} {
		s, err := ParseState(eventtest.Of(event(graspsync.KindState, key(1), nostr.Tag{"d", "x"}, nostr.Tag{"HEAD", value})))
		require.NoError(t, err)
		assert.Equal(t, want, s.HEAD.String(), "%q", value)
	}
}

// The verdicts are those of git check-ref-format, version 2.39.
func TestParseRefName(t *testing.T) {
	for _, name := range []string{
		"refs/heads/main", "refs/heads/a/b/c", "refs/tags/v1.0", "refs/heads/@", "refs/heads/a@b", "refs/heads/-x",
		"refs/heads/ä", "refs/heads/a.lock.b", "refs/heads/lock", "refs/heads/{", "refs/heads/a.b", "refs/heads/'\";$(x)",
		"refs/heads/\xff", "refs/heads/HEAD", "refs/heads/a!",
	} {
		require.NoError(t, parseErr(ParseRefName(name)), "%q", name)
	}
	for _, name := range []string{
		"", "HEAD", "main", "refs", "refs/", "refs/heads", "refs/heads/", "refs/tags/", "refs/x/y", "refs/notes/a",
		"/refs/heads/a", "refs//heads/a", "refs/heads//a", "refs/heads/a/", "refs/heads/.a", "refs/heads/a/.b",
		"refs/heads/a.", "refs/heads/a..b", "refs/heads/..", "refs/heads/a.lock", "refs/heads/a.lock/b",
		"refs/heads/.lock", "refs/heads/a@{b", "refs/heads/@{", "refs/heads/a b", "refs/heads/a\tb", "refs/heads/a\x00",
		"refs/heads/a\x7f", "refs/heads/a~1", "refs/heads/a^", "refs/tags/v1^{}", "refs/heads/a:b", "refs/heads/a?",
		"refs/heads/*", "refs/heads/a[", "refs/heads/a\\b", "refs/heads/a\n",
	} {
		require.Error(t, parseErr(ParseRefName(name)), "%q", name)
	}
}

func FuzzParseState(f *testing.F) {
	f.Add("d\tx\nHEAD\tref: refs/heads/main\nrefs/heads/main\t" + sha1)
	f.Add("d\tx\nrefs/tags/v1^{}\t" + sha1 + "\nrefs/tags/v1\t" + sha256 + "\nrefs/tags/v1\n")
	f.Add("d")
	f.Add("\n\nHEAD\nd\tx\nHEAD\tref: ")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseState(eventtest.Of(event(graspsync.KindState, key(1), fuzzTags(text)...)))
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.NoError(t, graspsync.CheckIdentifier(s.Ref.Identifier))
		if !s.HEAD.IsZero() {
			require.NoError(t, parseErr(ParseRefName(s.HEAD.String())))
		}
		for name, object := range s.Refs {
			require.NoError(t, parseErr(ParseRefName(name.String())))
			require.NoError(t, parseErr(ParseObjectID(object.String())))
			require.NotContains(t, name.String(), "..")
			require.NotContains(t, name.String(), "^")
		}
	})
}

// parseErr is the error of a parser.
func parseErr[T any](_ T, err error) error { return err }

func TestObjectFormats(t *testing.T) {
	for format, digits := range map[ObjectFormat]int{SHA1: 40, SHA256: 64} {
		id, err := ParseObjectID(strings.Repeat("a", digits))
		require.NoError(t, err)
		assert.Equal(t, format, id.Format())
		assert.False(t, id.IsZero())
	}
	assert.Equal(t, "sha1 sha256 format(7)", fmt.Sprint(SHA1, SHA256, ObjectFormat(7)))
	assert.True(t, ObjectID{}.IsZero())
	assert.Equal(t, "refs/nostr/"+strings.Repeat("00", 32), EventRef(graspsync.EventID{}).String())
}

// A state that git cannot apply was accepted, and blocked all later states.
func TestParseStateThatNoRepositoryCanHave(t *testing.T) {
	parse := func(names ...string) (*State, error) {
		tags := []nostr.Tag{{"d", "x"}}
		for _, name := range names {
			tags = append(tags, nostr.Tag{name, sha1})
		}
		return ParseState(eventtest.Of(event(graspsync.KindState, key(1), tags...)))
	}
	for _, names := range [][]string{
		{"refs/heads/a", "refs/heads/a/b"},
		{"refs/heads/a/b/c/d", "refs/heads/x", "refs/heads/a/b"},
		{"refs/tags/v1", "refs/tags/v1/x"},
	} {
		_, err := parse(names...)
		require.ErrorIs(t, err, ErrInvalid, names)
	}
	s, err := parse("refs/heads/a", "refs/tags/a/b", "refs/heads/ab", "refs/heads/"+strings.Repeat("n", 250))
	require.NoError(t, err)
	require.Len(t, s.Refs, 4)
}
