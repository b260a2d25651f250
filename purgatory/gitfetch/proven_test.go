package gitfetch_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// A host that answers as a git server is exempt from the limit of its address. Git servers never
// were, so all of them were tried only once an hour. Other hosts count toward the limit.
func TestPromiseP14_ServersProveTheirHost(t *testing.T) {
	racetest.Amounts(t)
	there := bare(t, nip34.SHA1)
	ids := history(t, there, "main", 2)
	for name, end := range map[string]bool{"kept open": false, "closed each time": true} {
		t.Run(name, func(t *testing.T) {
			o := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if end {
					w.Header().Set("Connection", "close")
				}
				if strings.HasPrefix(r.URL.Path, "/none") {
					http.NotFound(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
			budget, err := egress.NewBudget(egress.BudgetConfig{})
			require.NoError(t, err)
			dialer, err := egress.NewDialer(egress.Config{
				AllowPlaintext: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Budget: budget, BudgetAllowed: true,
			})
			require.NoError(t, err)
			f, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, MinFreeDisk: 1 << 20})
			require.NoError(t, err)
			t.Cleanup(f.Close)
			for range 5 {
				f.Close()
				require.NoError(t, attempt(t.Context(), f, bare(t, nip34.SHA1), o.clone(t), ids[1]))
			}
			hosts := budget.Export().Hosts
			require.Len(t, hosts, 1)
			require.Equal(t, "127.0.0.1", hosts[0].Host)
			require.True(t, hosts[0].Address.IsValid())
		})
	}
	for name, none := range map[string]http.HandlerFunc{
		"not found": http.NotFound, "web page": text(200, "<html>"),
		"git, it says": text(200, pkt("# service=git-upload-pack\n")+"0000"+pkt("version 2\n")+pkt("fetch\n")+"0000"),
	} {
		t.Run(name, func(t *testing.T) {
			o := serve(t, there, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { none(w, r) })
			budget, err := egress.NewBudget(egress.BudgetConfig{})
			require.NoError(t, err)
			dialer, err := egress.NewDialer(egress.Config{
				AllowPlaintext: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Budget: budget, BudgetAllowed: true,
			})
			require.NoError(t, err)
			f, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, MinFreeDisk: 1 << 20})
			require.NoError(t, err)
			t.Cleanup(f.Close)
			require.Eventually(t, func() bool { // until then the connection of the attempt before may still be used
				f.Close()
				err := attempt(t.Context(), f, sample(t), o.clone(t), ids[1])
				require.Error(t, err)
				return errors.Is(err, egress.ErrBudget)
			}, time.Minute, 10*time.Millisecond)
		})
	}
}
