package explain

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
)

// Lift commands are safe to copy into a shell, because strangers choose identifiers. The shell must
// return the identifier unchanged and run nothing.
func TestWhatIsCopiedIntoAShell(t *testing.T) {
	owner := graspsync.PubKey{1}
	for _, identifier := range []string{
		"demo", "with space", "$(echo pwned)", "`echo pwned`", `a"b`, "it's", "'; echo pwned #", `back\slash`, "~", "!!", "-n", "é", "a{b,c}", "=x", "^", "%",
	} {
		r := rules.Rule{Subject: rules.OfRepository(graspsync.RepoRef{Owner: owner, Identifier: identifier}), Action: rules.Block}
		lift := blockedBy(r).Lift
		out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", `printf '%s\n' `+lift).Output()
		require.NoError(t, err, lift)
		require.Equal(t, []string{"unset", "repository", nip34.NPub(owner) + "/" + identifier}, strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"), lift)
	}
	r := rules.Rule{Subject: rules.OfRepository(graspsync.RepoRef{Owner: owner, Identifier: "a\nb\x1b[2J"}), Action: rules.Block}
	require.Equal(t, graspsync.Printable(blockedBy(r).Lift), blockedBy(r).Lift, "nothing that a terminal obeys")
}
