package wstransport

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
)

// A connection that stays open long enough makes its host exempt from the budget. A shorter one, or a
// server that is no relay, uses the budget of its address.
func TestPromiseP14_ConnectionsProveTheirHost(t *testing.T) {
	racetest.Amounts(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/none") || r.Header.Get("Upgrade") == "" {
			http.NotFound(w, r)
			return
		}
		if ws, err := websocket.Accept(w, r, nil); err == nil {
			_, _, _ = ws.Read(r.Context())
		}
	}))
	defer s.Close()
	budget, err := egress.NewBudget(egress.BudgetConfig{})
	require.NoError(t, err)
	dialer, err := egress.NewDialer(egress.Config{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowPlaintext: true, Budget: budget, BudgetAllowed: true,
	})
	require.NoError(t, err)
	transport, err := New(Config{Dialer: dialer})
	require.NoError(t, err)
	assert.Equal(t, time.Minute, transport.provenAfter)
	transport.provenAfter = 10 * time.Millisecond
	u, err := graspsync.ParseRelayURL(strings.Replace(s.URL, "http://", "ws://", 1))
	require.NoError(t, err)
	c, err := transport.Dial(t.Context(), u)
	require.NoError(t, err)
	<-c.InfoKnown()
	require.Eventually(t, func() bool { return len(budget.Export().Hosts) == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, c.Close())
	none, err := graspsync.ParseRelayURL(u.String() + "/none")
	require.NoError(t, err)
	for range 10 { // free
		_, err := transport.Dial(t.Context(), none)
		assert.NotErrorIs(t, err, egress.ErrBudget)
	}

	other, err := graspsync.ParseRelayURL(strings.Replace(none.String(), "127.0.0.1", "127.0.0.9", 1))
	require.NoError(t, err)
	_, err = transport.Dial(t.Context(), other)
	require.Error(t, err)
	require.NotErrorIs(t, err, egress.ErrBudget)
	_, err = transport.Dial(t.Context(), other)
	require.ErrorIs(t, err, egress.ErrBudget, "health reads when it may be tried again")
	require.ErrorIs(t, err, relaysync.ErrNotDialed, "a refusal of ours is no failure of the relay")
	require.NotErrorIs(t, err, relaysync.ErrForbidden)
	var wait interface{ RetryAfter() time.Duration }
	require.ErrorAs(t, err, &wait)
	assert.Positive(t, wait.RetryAfter())
}
