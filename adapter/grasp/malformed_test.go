package grasp_test

import (
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
)

// Whoever had an announcement refused as "malformed event" had to guess what was wrong with it.
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
		{1618, nostr.Tags{repo}, "invalid: the c tag is missing or has no value"},
		{1618, nostr.Tags{repo, {"c"}}, "invalid: the c tag is missing or has no value"},
		{1618, nostr.Tags{repo, {"c", "refs/heads/main"}}, "invalid: the c tag: not a git object id, which has 40 or 64 lower-case hex digits"},
		{1619, nostr.Tags{repo, {"c", tip[1][1:]}}, "invalid: the c tag: not a git object id"},
		{1618, nostr.Tags{repo, {"c", strings.Repeat("A", 40)}}, "invalid: the c tag: not a git object id"},
	} {
		refused := r.publish(author.Event(nostr.Now()-10, c.kind, "", c.tags...))
		require.Len(t, refused, 1, "%d %v", c.kind, c.tags)
		require.ErrorContains(t, refused[0], "msg: invalid: ")
		require.ErrorContains(t, refused[0], c.reason)
	}
}
