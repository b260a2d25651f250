package grasp_test

import (
	"strings"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The audit log had no entry of a command, except a purge, during which the process was killed.
// Each command that changes something has an entry before its execution, whether it succeeds or
// fails.
func TestEachCommandIsRecordedBeforeIt(t *testing.T) {
	var c *commanded
	var entries []admin.Entry
	before := make(map[string]int) // rules at the entry "begun" by command
	r := newCommanded(t)
	r.stop()
	configure := r.configure
	r.configure = func(relay *khatru.Relay, cfg *grasp.Config) {
		configure(relay, cfg)
		cfg.Audit = func(e admin.Entry) {
			if entries = append(entries, e); e.Outcome == admin.Begun {
				before[e.Command] = len(c.server.Control().Rules().All())
			}
		}
	}
	c = r
	c.start()
	owner := relaytest.NewKey("owner")
	require.Empty(t, c.publish(owner.Hosted(nostr.Now()-100, "repo", "ws://"+c.addr)))
	ref, relay := owner.Ref("repo").String(), "wss://127.0.0.2:8443"
	args := map[string][][]string{
		"block": {{"relay", "spam.example", "spam"}}, "allow": {{"relay", "good.example"}}, "unset": {{"relay", "spam.example"}, {"relay", "nobody.example"}},
		"purge": {{"repository", ref}}, "remove": {{"author", relaytest.NewKey("mallory").Npub(), "more"}},
		"retry": {{relay}}, "resync": {{"relay", relay}, {"repository", ref}}, "refetch": {{ref}}, "maintain": {{ref}},
		"rules": {{}}, "confirm": {{"departures"}},
	}
	control := c.server.Control()
	outcomes := func() (out []string) {
		for _, e := range entries {
			require.Equal(t, entries[0].Command, e.Command)
			require.Equal(t, entries[0].Args, e.Args, "the same, so that one finds what came of it")
			require.Equal(t, entries[0].By, e.By)
			out = append(out, e.Outcome)
		}
		return out
	}
	for _, name := range control.Commands() {
		require.NotEmpty(t, args[name], "%s: nobody has tried it", name)
		for _, these := range args[name] {
			entries = nil
			_, err := control.Do(t.Context(), "somebody", name, these...)
			want := []string{admin.Begun, admin.Done}
			switch {
			case name == "rules":
				want = nil // changes nothing
			case err != nil:
				want[1] = admin.Failed
			}
			require.Equal(t, want, outcomes(), "%s %v: %v", name, these, err)
		}
	}
	require.Equal(t, 1, before["block"], "there is what was allowed before")
	entries = nil
	file, err := rules.ParseFile(strings.NewReader("block relay other.example"))
	require.NoError(t, err)
	all := len(control.Rules().All())
	require.NoError(t, c.server.Control().Reload(t.Context(), "SIGHUP", reads(file)))
	require.Equal(t, []string{admin.Begun, admin.Done}, outcomes())
	require.Equal(t, all, before["reload"])
}
