package egress_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// TestInOrder plays servers that refuse at once, never answer, or connect after a
// while; times are exact.
func TestInOrder(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	refuse := func(context.Context) error { return errors.New("refused") }
	forbid := func(context.Context) error { return egress.ErrAddress }
	after := func(d time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-time.After(d):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	type server = func(context.Context) error
	for _, row := range []struct {
		name    string
		timeout time.Duration
		servers []server
		winner  int // -1: none
		tried   int
		took    time.Duration
	}{
		{"one, at once", 10 * time.Second, []server{after(0)}, 0, 1, 0},
		{"one gets all the time", 10 * time.Second, []server{after(9 * time.Second)}, 0, 1, 9 * time.Second},
		{"one that hangs", 10 * time.Second, []server{hang}, -1, 1, 10 * time.Second},
		{"the second after half the time", 10 * time.Second, []server{hang, after(4 * time.Second)}, 1, 2, 9 * time.Second},
		{"what is refused costs no time", 10 * time.Second, []server{refuse, refuse, refuse, after(9 * time.Second)}, 3, 4, 9 * time.Second},
		{"the last of four", 10 * time.Second, []server{hang, hang, hang, after(2 * time.Second)}, 3, 4, 9500 * time.Millisecond},
		{"all hang", 10 * time.Second, []server{hang, hang, hang, hang}, -1, 4, 10 * time.Second},
		{"at least two seconds each", 3 * time.Second, []server{hang, hang, hang}, -1, 2, 3 * time.Second},
		{"all refuse", 10 * time.Second, []server{refuse, refuse}, -1, 2, 0},
		{"a forbidden one ends it", 10 * time.Second, []server{refuse, forbid, after(0)}, -1, 2, 0},
		{"no deadline", 0, []server{refuse, after(time.Hour)}, 1, 2, time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if row.timeout > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.timeout)
					defer cancel()
				}
				start, tried := time.Now(), 0
				all := addrs("1.0.0.1", "1.0.0.2", "1.0.0.3", "1.0.0.4")[:len(row.servers)]
				var won net.Conn
				conn, err := egress.InOrder(ctx, all, func(ctx context.Context, a netip.Addr) (net.Conn, error) {
					require.Equal(t, all[tried], a, "in order")
					tried++
					if err := row.servers[tried-1](ctx); err != nil {
						return nil, err
					}
					won, _ = net.Pipe()
					return won, nil
				})
				assert.Equal(t, row.took, time.Since(start))
				assert.Equal(t, row.tried, tried)
				if row.winner < 0 {
					assert.Error(t, err)
					assert.Nil(t, conn)
					return
				}
				require.NoError(t, err)
				assert.Same(t, won, conn)
				assert.Equal(t, row.winner, tried-1)
			})
		})
	}
}

// slow is a Resolver that never answers.
type slow struct{}

func (slow) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDialIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialer(t, egress.Config{Resolver: slow{}})
		start := time.Now()
		_, err := d.DialContext(t.Context(), "tcp", "relay.test:443")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 10*time.Second, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		_, err = newDialer(t, egress.Config{Resolver: slow{}}).DialContext(ctx, "tcp", "relay.test:443")
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start), "the caller's deadline, where it is earlier")
	})
}
