package egress

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/internal/racetest"
)

// In drawn worlds of hosts that share addresses, fail, answer and are proven, with restarts,
// every wait and every record is what it was before.
func TestLedgerWorlds(t *testing.T) {
	racetest.Amounts(t)
	sums := goldentest.NewSums(t, "testdata/ledger.sum")
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		perAddress := 1 + rng.IntN(4)
		cfg := BudgetConfig{
			PerMinute: 20 + rng.IntN(300), fixed: budgetConstants{
				PerAddress:   perAddress,
				MaxAddresses: 4 + rng.IntN(30),
				MaxHosts:     2 + rng.IntN(10),
				Rand: func() float64 { // or what is no number between 0 and 1
					return []float64{rng.Float64(), rng.Float64(), rng.Float64(), 0, 1, -0.5, math.NaN()}[rng.IntN(7)]
				},
			},
		}
		busy := seed >= 30 // so that there are more attempts than may be begun in a minute
		if busy {
			cfg.PerMinute = 10 + rng.IntN(20)
		}
		fresh := func() *ledger {
			b, err := NewBudget(cfg)
			require.NoError(t, err)
			return &b.ledger
		}
		l, now := fresh(), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		var lines []string
		say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		at := func() netip.Prefix {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{9, 9, 9, byte(1 + rng.IntN(8))}), 32)
		}
		host := func() string { return fmt.Sprintf("h%d.example", rng.IntN(12)) }
		var open []*ticket
		var states []BudgetState
		for range 600 {
			steps := []time.Duration{0, time.Millisecond, time.Second, time.Minute, 10 * time.Minute, time.Hour, 13 * time.Hour}
			if busy {
				steps = steps[:3]
			}
			now = now.Add(time.Duration(rng.Float64() * float64(steps[rng.IntN(len(steps))])))
			var k *ticket
			if len(open) > 0 {
				k = open[rng.IntN(len(open))]
			}
			switch h, to := host(), at(); rng.IntN(12) {
			default:
				k, err := l.begin(h, to, now)
				if say("%d begin %s %v: %v %v", now.Unix(), h, to, k != nil, err); k != nil {
					open = append(open, k)
				}
			case 5, 6, 7:
				if k != nil {
					l.end(k, now)
				}
			case 8:
				if k != nil {
					say("cancel %v", l.cancel(k))
				}
			case 9:
				l.answered(h)
			case 10:
				l.prove(h)
			case 11:
				say("tried %s %v: %v", h, to, l.tried(h, to))
				states = append(states, l.export(now))
				switch rng.IntN(8) {
				case 0, 1:
					l, open = fresh(), nil
					l.restore(states[len(states)-1], now)
				case 2, 3: // what was there stays beside what is read
					l.restore(states[rng.IntN(len(states))], now)
				case 4: // by a clock that was wrong, or from another one's
					l.restore(states[rng.IntN(len(states))], now.Add(-time.Duration(rng.IntN(100))*time.Hour))
				}
			}
			say("%+v refused %d tokens %.6f", l.export(now), l.refused, l.pace.TokensAt(now))
		}
		sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
	}
}
