package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/limit"
)

// What is just within the bounds of a budget is taken, what is just outside is not.
func TestBudgetConfigBounds(t *testing.T) {
	require.Equal(t, BudgetConfig{
		fixed: budgetConstants{
			BaseBackoff:  5 * time.Second,
			MaxBackoff:   time.Hour,
			DeadAfter:    24 * time.Hour,
			DeadInterval: 24 * time.Hour,
			RestartPause: time.Minute,
			Jitter:       0.1,
			MaxAddresses: 50_000,
			MaxHosts:     50_000,
			PerAddress:   4,
		}, PerMinute: 600,
	}, func() BudgetConfig { c := BudgetConfig{}.withDefaults(); c.fixed.Rand = nil; return c }())
	set := BudgetConfig{
		fixed: budgetConstants{
			BaseBackoff:  1,
			MaxBackoff:   2,
			DeadAfter:    3,
			DeadInterval: 4,
			RestartPause: 5,
			Jitter:       1,
			MaxAddresses: 8,
			MaxHosts:     9,
			PerAddress:   6,
		}, PerMinute: 7,
	}
	kept := set.withDefaults()
	kept.fixed.Rand = nil
	require.Equal(t, set, kept)
}

// The bounds of the HTTP client. What is not named here may be as long, or as much, as
// anybody likes.
func TestClientBounds(t *testing.T) {
	d, err := NewDialer(Config{})
	require.NoError(t, err)
	c := d.HTTPClient(7 * time.Second)
	assert.Equal(t, 7*time.Second, c.Timeout)
	assert.Nil(t, c.Jar)
	got := c.Transport.(*guardedTransport).next
	assert.Nil(t, got.Proxy)
	assert.NotNil(t, got.DialContext)
	assert.Nil(t, got.DialTLSContext)
	var one http.Protocols
	one.SetHTTP1(true)
	assert.Equal(t, one, *got.Protocols)
	assert.EqualValues(t, tls.VersionTLS12, got.TLSClientConfig.MinVersion)
	assert.Equal(t, []any{10 * time.Second, 30 * time.Second, int64(65536), 32, 2, 0, 30 * time.Second}, []any{
		got.TLSHandshakeTimeout, got.ResponseHeaderTimeout, got.MaxResponseHeaderBytes, got.MaxIdleConns, got.MaxIdleConnsPerHost,
		got.MaxConnsPerHost, got.IdleConnTimeout,
	})
}

// A tenth of what is begun in a minute may come at once, and then as many as are due by then.
func TestPaceOfAttempts(t *testing.T) {
	b, err := NewBudget(BudgetConfig{PerMinute: 60})
	require.NoError(t, err)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	n := 0
	begin := func(at time.Duration) time.Duration {
		n++
		to := netip.PrefixFrom(netip.AddrFrom4([4]byte{9, 9, 9, byte(n)}), 32)
		_, err := b.ledger.begin(fmt.Sprint(n), to, now.Add(at))
		if err == nil {
			return 0
		}
		budget, ok := errors.AsType[*BudgetError](err)
		require.True(t, ok)
		return budget.Wait.Round(time.Microsecond)
	}
	for range 6 {
		require.Zero(t, begin(0))
	}
	require.Equal(t, time.Second, begin(0))
	require.Equal(t, 250*time.Millisecond, begin(750*time.Millisecond))
	require.Zero(t, begin(1001*time.Millisecond))
	require.Equal(t, 999*time.Millisecond, begin(1001*time.Millisecond))
	for range 6 {
		require.Zero(t, begin(time.Hour))
	}
	require.Equal(t, time.Second, begin(time.Hour))
	require.EqualValues(t, 4, b.Refused())
}

// What is said of what is refused.
func TestErrorsAreSpelled(t *testing.T) {
	var out strings.Builder
	say := func(what string, err error) { fmt.Fprintf(&out, "%s: %v\n", what, err) }
	long := strings.Repeat("x", 101)
	for _, s := range []string{
		"wss://" + strings.Repeat("a", 2048), "wss://a.example/\x01", "wss://user@a.example", "wss://[::1", "wss://[::1]x", "wss://[1.2.3.4]",
		"wss://a.example:x", "wss://a.example:22", "wss://a.example:99999", "wss://a..b", "wss://1.2.3", "wss://a.example/%zz",
		"wss://a.example/" + strings.Repeat(`"`, 900), "ftp://a.example", "f t://a.example", "f_t://a.example", long + "://a.example",
		"wss://" + long, "wss://\xff",
	} {
		_, err := graspsync.ParseURL(s, graspsync.RelaySchemes)
		say(fmt.Sprintf("%.40q", s), err)
	}
	_, err := graspsync.ParseURL("a.example", nil)
	say("no schemes", err)
	d, err := NewDialer(Config{
		Own: []netip.AddrPort{netip.MustParseAddrPort("9.9.9.9:8080")}, OwnNames: []graspsync.HostPort{{Host: "us.example", Port: 443}},
		fixed: constants{
			HostAddrs: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("8.8.4.4")}, nil },
		},
		Allow: []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96")},
	})
	require.NoError(t, err)
	for _, u := range []graspsync.URL{
		{Scheme: long}, {Scheme: "ws", HostPort: graspsync.HostPort{Host: "a.example", Port: 80}}, {Scheme: "wss", HostPort: graspsync.HostPort{Host: "a.example", Port: 22}},
		{Scheme: "wss", HostPort: graspsync.HostPort{Host: "us.example", Port: 443}}, {Scheme: "wss", HostPort: graspsync.HostPort{Host: "9.9.9.9", Port: 8080}},
		{Scheme: "wss", HostPort: graspsync.HostPort{Host: "8.8.4.4", Port: 443}}, {Scheme: "wss", HostPort: graspsync.HostPort{Host: "10.0.0.1", Port: 443}},
		{Scheme: "wss", HostPort: graspsync.HostPort{Host: "0.0.0.0", Port: 443}}, {Scheme: "wss", HostPort: graspsync.HostPort{Host: "64:ff9b::a00:1", Port: 443}},
		{Scheme: "wss", HostPort: graspsync.HostPort{Host: "a b", Port: 443}},
	} {
		say(fmt.Sprintf("%.40v", u.HostPort), d.Check(u))
	}
	for _, addr := range []string{"a.example", long, "10.0.0.1:443", ":443", "a.example:22"} {
		_, err := d.DialContext(t.Context(), "tcp", addr)
		say("dial "+graspsync.Clip(addr, 100), err)
	}
	_, err = d.DialContext(t.Context(), long, "10.0.0.1:443")
	say("dial by another network", err)
	say("socket", d.judge.socket(long))
	for _, from := range []string{"https://a.example/", "http://a.example/"} {
		for _, to := range []string{"http://a.example", "//10.0.0.1", "%zz:", "https://a.example/x", "https://1.2.3", ""} {
			_, err := NextHop(d, from, to)
			say(fmt.Sprintf("from %s to %q", from, to), err)
		}
	}
	d.judge.hostAddrs = func() ([]netip.Addr, error) { return nil, errors.New("unknown") }
	say("own addresses unknown", d.judge.socket("8.8.8.8:443"))
	_, err = d.DialContext(t.Context(), "tcp", "8.8.8.8:443")
	say("own addresses unknown", err)
	_, err = inOrder(t.Context(), nil, nil)
	say("nothing to try", err)
	say("budget", &BudgetError{netip.MustParsePrefix("9.9.9.9/32"), 1499 * time.Millisecond})
	_, err = NewDialer(Config{Own: make([]netip.AddrPort, 1), OwnNames: make([]graspsync.HostPort, 1), Allow: []netip.Prefix{{}, netip.MustParsePrefix("::ffff:0:0/96")}})
	say("config", err)
	_, err = NewBudget(BudgetConfig{fixed: budgetConstants{
		BaseBackoff:  -1,
		Jitter:       2,
		MaxBackoff:   1,
		DeadInterval: time.Nanosecond,
	}, PerMinute: -1})
	say("budget config", err)
	goldentest.Equal(t, "testdata/errors.txt", out.String())
}

// The addresses of this host are those of its interfaces, spelled as they are compared.
func TestInterfaceAddrs(t *testing.T) {
	got, err := interfaceAddrs()
	require.NoError(t, err)
	list, err := net.InterfaceAddrs()
	require.NoError(t, err)
	require.Len(t, got, len(list))
	for i, a := range list {
		assert.Equal(t, a.(*net.IPNet).IP.String(), got[i].String())
	}
}

// An address is what somebody is given one of.
func TestBudgetPrefix(t *testing.T) {
	for addr, want := range map[string]string{
		"9.9.9.9": "9.9.9.9/32", "::ffff:9.9.9.9": "9.9.9.9/32", "2606:4700:1:8000::1": "2606:4700:1::/48",
		"2606:4700:1:ffff::1%eth0": "2606:4700:1::/48", "2606:4700:ffff::": "2606:4700:ffff::/48",
	} {
		assert.Equal(t, want, budgetPrefix(netip.MustParseAddr(addr)).String())
	}
}

// An address is dead after a day of failures, not a moment sooner, and the time in which
// nobody tried does not count where it was longer than any backoff.
func TestDeathOfAnAddress(t *testing.T) {
	b, err := NewBudget(BudgetConfig{fixed: budgetConstants{Rand: func() float64 { return 0 }}})
	require.NoError(t, err)
	l, now := &b.ledger, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for after, dead := range map[time.Duration]bool{24*time.Hour - 1: false, 24 * time.Hour: true} {
		a := &account{Record: backoff.Record{FailingSince: now, LastFailure: now.Add(after)}}
		assert.Equal(t, dead, l.rules(a).Dead(a.Record))
		a.shared = true
		assert.False(t, l.rules(a).Dead(a.Record))
	}
	at := netip.MustParsePrefix("9.9.9.9/32")
	for idle, since := range map[time.Duration]time.Duration{time.Hour: 0, time.Hour + 1: time.Hour + 1} {
		l.accounts.Put(accountKey{at, false}, limit.Stranger{}, 0, &account{Record: backoff.Record{Failures: 1, FailingSince: now, LastFailure: now, Next: now.Add(time.Minute)}})
		k, err := l.begin("a.example", at, now.Add(time.Minute+idle))
		require.NoError(t, err)
		assert.Equal(t, now.Add(since), l.account(k.key).FailingSince)
		require.True(t, l.cancel(k))
	}
}

// Where our network has no way to an address, nobody was attempted.
func TestNoWayIsNoAttempt(t *testing.T) {
	for _, why := range []error{syscall.ENETUNREACH, syscall.EAFNOSUPPORT, syscall.EADDRNOTAVAIL} {
		d, err := NewDialer(Config{fixed: constants{HostAddrs: func() ([]netip.Addr, error) { return nil, nil }}})
		require.NoError(t, err)
		SetSocket(d, func(_ context.Context, to netip.AddrPort, judge func(string) error) (net.Conn, error) {
			return nil, errors.Join(judge(to.String()), why)
		})
		for range 10 {
			_, err := d.DialContext(t.Context(), "tcp", "9.9.9.9:443")
			require.ErrorIs(t, err, why)
			require.NotErrorIs(t, err, ErrBudget)
		}
		require.Empty(t, d.Budget().ledger.open)
	}
}

// A listener on all addresses is one at each of this host's, and at no others.
func TestOwnListenersEverywhere(t *testing.T) {
	d, err := NewDialer(Config{
		Own: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:8080"), netip.MustParseAddrPort("9.9.9.9:8081")},
		fixed: constants{
			HostAddrs: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("8.8.4.4")}, nil },
		},
		Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
	})
	require.NoError(t, err)
	for addr, own := range map[string]bool{
		"8.8.8.8:8080": false, "8.8.4.4:8080": true, "8.8.4.4:8082": false, "127.0.0.1:8080": true, "[::1]:8080": true,
		"9.9.9.9:8081": true, "9.9.9.9:8080": false, "8.8.4.4:8081": false, "127.0.0.1:8081": false,
	} {
		err := d.judge.socket(addr)
		assert.Equal(t, own, errors.Is(err, ErrOwn), addr)
		assert.Equal(t, own, err != nil, addr)
	}
}

// That there was no budget for an address is said only where nothing else was tried.
func TestRefusalsAreSaidLast(t *testing.T) {
	budget, broken := &BudgetError{}, errors.New("broken")
	addrs := []netip.Addr{netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("9.9.9.8"), netip.MustParseAddr("9.9.9.7")}
	for _, row := range []struct{ errs, want []error }{
		{[]error{budget, broken, budget}, []error{broken}},
		{[]error{budget, budget, budget}, []error{budget, budget, budget}},
		{[]error{broken, ErrAddress, broken}, []error{broken, ErrAddress}},
	} {
		n := 0
		_, err := inOrder(t.Context(), addrs, func(context.Context, netip.Addr) (net.Conn, error) {
			n++
			return nil, row.errs[n-1]
		})
		assert.Equal(t, errors.Join(row.want...), err)
	}
}
