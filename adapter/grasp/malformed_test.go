package grasp_test

import (
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
)

// The refusal of an announcement as "malformed event" did not name its cause.
func TestCaseC14_RefusalNamesItsCause(t *testing.T) {
	r, work, commit := newRig(t)
	owner, author := relaytest.NewKey("owner"), relaytest.NewKey("author")
	r.serve(work, commit, owner)
	repo, tip := nostr.Tag{"a", owner.Ref("repo").String()}, nostr.Tag{"c", strings.Repeat("1", 40)}
	for _, c := range []struct {
		kind   int
		tags   nostr.Tags
		reason string
	}{
		{30617, nostr.Tags{{"d", ""}}, "invalid: the d tag is empty"},
		{30618, nostr.Tags{{"d", ""}}, "invalid: the d tag is empty"},
		{30617, nostr.Tags{}, "invalid: the d tag is missing or has no value"},
		{30618, nostr.Tags{}, "invalid: the d tag is missing or has no value"},
		{30617, nostr.Tags{{"d"}}, "invalid: d tag without a value"},
		{30617, nostr.Tags{{"d", "a\nb"}}, "control byte in identifier"},
		{30617, nostr.Tags{{"d", strings.Repeat("x", 10_000)}}, "identifier of 10000 bytes, more than"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/a", tip[1]}, {"refs/heads/a/b", tip[1]}}, "invalid: refs refs/heads/a and refs/heads/a/b exclude each other"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/main"}}, "invalid: refs/heads/main: no object id"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/main", commit}, {"refs/tags/v1", ""}}, "invalid: refs/tags/v1: not a git object id"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/main", commit + "0"}}, "invalid: refs/heads/main: not a git object id"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/main", strings.ToUpper(commit)}}, "invalid: refs/heads/main: not a git object id"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/main", strings.Repeat("0", 40)}}, "invalid: refs/heads/main: not a git object id: all digits are zero"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/main", commit}, {"refs/heads/x ", commit}}, `invalid: refs/heads/x : ref name contains " "`},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/main", commit}, {"refs/heads/x\x1b", commit}}, `invalid: refs/heads/x\x1b: ref name contains "\x1b"`},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/a..b", commit}}, `invalid: refs/heads/a..b: ref name contains ".."`},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/a.lock", commit}}, "invalid: refs/heads/a.lock: a part of the ref name ends with .lock"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/" + strings.Repeat("n", 60_000), commit}}, "ref name has 60011 bytes, more than 1024"},
		{30618, nostr.Tags{{"d", "repo"}, {"refs/heads/" + strings.Repeat("n", 256), commit}}, "a part of the ref name has 256 bytes, more than 250"},
		{1618, nostr.Tags{repo}, "invalid: the c tag is missing or has no value"},
		{1618, nostr.Tags{repo, {"c"}}, "invalid: the c tag is missing or has no value"},
		{1618, nostr.Tags{repo, {"c", "refs/heads/main"}}, "invalid: the c tag: not a git object id, which has 40 or 64 lower-case hex digits"},
		{1619, nostr.Tags{repo, {"c", tip[1][1:]}}, "invalid: the c tag: not a git object id"},
		{1618, nostr.Tags{repo, {"c", strings.Repeat("0", 40)}}, "invalid: the c tag: not a git object id"},
		{1618, nostr.Tags{repo, {"c", strings.Repeat("A", 40)}}, "invalid: the c tag: not a git object id"},
	} {
		refused := r.publish(author.Event(nostr.Now()-10, c.kind, "", c.tags...))
		require.Len(t, refused, 1, "%d %v", c.kind, c.tags)
		require.ErrorContains(t, refused[0], "msg: invalid: ")
		require.ErrorContains(t, refused[0], c.reason)
	}
}
