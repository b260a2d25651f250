package settings

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Loopback is allowed only for a domain that no other host can reach.
func TestOnThisMachine(t *testing.T) {
	for domain, want := range map[string]bool{
		"127.0.0.1:3334": true, "127.0.0.1:3334/git": true, "localhost": true, "localhost:8080": true, "[::1]:3334": true,
		"grasp.example.com": false, "localhost.example.com": false, "127.0.0.1.example.com": false, "10.0.0.1:3334": false, "[fe80::1]:3334": false,
	} {
		set, err := Open(domain, t.TempDir(), []string{"relay.example.com"})
		require.NoError(t, err, domain)
		require.NoError(t, set.Records.Close())
		require.Equal(t, want, set.Egress.AllowPlaintext, domain)
		require.Equal(t, want, len(set.Egress.Allow) > 0, domain)
		require.Equal(t, "wss://relay.example.com/", set.Sync.Bootstrap[0].String()+"/")
	}
}
