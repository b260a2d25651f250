package graspadapter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// Who has a say is another one with another Membership: what was rejected for want of one stayed rejected
// for a week.
func TestAnotherMembershipIsAnotherPolicy(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	versions := make(map[string]bool)
	for _, m := range []nip34.Membership{{}, {OneSided: true}} {
		c, err := Config{Membership: m}.withDefaults(identity)
		require.NoError(t, err)
		versions[c.Sync.PolicyVersion] = true
	}
	require.Len(t, versions, 2)
}
