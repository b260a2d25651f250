package wstransport

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/backoff"
)

func keeping(t *testing.T) *Transport {
	t.Helper()
	dialer, err := egress.NewDialer(egress.Config{})
	require.NoError(t, err)
	tr, err := New(Config{Dialer: dialer})
	require.NoError(t, err)
	return tr
}

// A crash may leave new chunks beside old chunks. All records were lost then.
func TestPromiseP15_BudgetsOfTornChunks(t *testing.T) {
	const n = 3_000
	now := time.Now()
	var s egress.BudgetState
	for i := range n {
		s.Addresses = append(s.Addresses, egress.AddressRecord{
			Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{9, 9, byte(i >> 8), byte(i)}), 32),
			Record:  backoff.Record{Failures: 3, FailingSince: now.Add(-time.Hour), LastFailure: now, LastAttempt: now, NextAttempt: now.Add(time.Hour)},
		})
	}
	s.Hosts = append(s.Hosts, egress.ProvenHost{Host: "a.example", Address: s.Addresses[0].Address})
	chunks := chunksOf(s)
	require.Greater(t, len(chunks), 2)

	whole := keeping(t)
	whole.Import(chunks)
	got := whole.cfg.Dialer.Budget().Export()
	require.Len(t, got.Addresses, n)
	require.Len(t, got.Hosts, 1)

	torn := keeping(t)
	torn.Import(append([][]byte{nil, []byte("{"), chunks[0][:len(chunks[0])/2]}, chunks[1:]...))
	require.Greater(t, len(torn.cfg.Dialer.Budget().Export().Addresses), n/2)

	s.Addresses[7].Failures++
	changed := 0
	for i, c := range chunksOf(s) {
		if !bytes.Equal(c, chunks[i]) {
			changed++
		}
	}
	require.Equal(t, 1, changed, fmt.Sprint("of ", len(chunks)))
}
