package egress_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
)

// No connection and no redirect leads to a blocked host, in any spelling, from the moment of the
// block.
func TestDeny(t *testing.T) {
	resolver := libc()
	for _, name := range []string{"spam.example", "good.example"} {
		resolver.set(name, "127.0.0.2")
	}
	var target, denied atomic.Value
	target.Store("")
	denied.Store("")
	_, port := serve(t, "127.0.0.2:0", func(w http.ResponseWriter, _ *http.Request) {
		if to := target.Load().(string); to != "" {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		}
	})
	d := newDialer(t, egress.Config{
		Allow: prefixes("127.0.0.2/32"), Resolver: resolver, AllowPlaintext: true,
		Deny: func(at graspsync.HostPort) bool { return at.String() == denied.Load() },
	})
	client := newClient(t, d)
	spellings := []string{"spam.example", "SPAM.Example", "spam.example."}
	for _, host := range spellings {
		_, err := get(t.Context(), client, "http://"+host+":"+port)
		require.NoError(t, err, host)
	}
	denied.Store("spam.example:" + port)
	for _, host := range spellings {
		u, err := graspsync.ParseURL("ws://"+host+":"+port, graspsync.RelaySchemes)
		require.NoError(t, err)
		require.ErrorIs(t, d.Check(u), egress.ErrDenied, host)
		require.ErrorIs(t, d.Check(u), egress.ErrAddress, host)
		_, err = d.DialContext(t.Context(), "tcp", host+":"+port)
		require.ErrorIs(t, err, egress.ErrDenied, host)
		_, err = get(t.Context(), client, "http://"+host+":"+port)
		require.Error(t, err, host)
	}
	_, err := get(t.Context(), client, "http://good.example:"+port)
	require.NoError(t, err)
	target.Store("http://spam.example:" + port + "/x")
	_, err = get(t.Context(), client, "http://good.example:"+port)
	require.ErrorIs(t, err, egress.ErrDenied)
	denied.Store("")
	target.Store("")
	_, err = get(t.Context(), client, "http://spam.example:"+port)
	require.NoError(t, err)
}
