package sync

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// visit is a guest of a room, let in or waiting, in the order in which they came.
type visit struct {
	of       *relayStats
	size     int64
	in, gone bool // should be
	cancel   context.CancelCauseFunc
	ended    chan error // of enter
}

// expect says who of those that wait is to be let in, by walking through all of them.
func expect(most int64, visits []*visit) {
	free, inside := most, map[*relayStats]int{}
	for _, v := range visits {
		if v.in && !v.gone {
			free -= v.size
			inside[v.of]++
		}
	}
	common, kept := true, true
	for _, v := range visits {
		if v.in || v.gone {
			continue
		}
		first := inside[v.of] == 0
		fits := common && (free-v.size >= most/4 || free == most) || kept && first && free >= v.size
		if fits {
			v.in = true
			free -= v.size
			inside[v.of]++
			continue
		}
		common = false
		if first {
			kept = false
		}
	}
}

func TestRoomAgainstItsTwin(t *testing.T) {
	errGone := errors.New("gone")
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			const most = 100
			r := newRoom(most)
			relays := make([]relayStats, 1+rnd.IntN(6))
			var visits []*visit
			for range 60 {
				switch open := pick(rnd, visits, func(v *visit) bool { return !v.gone }); {
				case open == nil || rnd.IntN(2) == 0:
					ctx, cancel := context.WithCancelCause(t.Context())
					v := &visit{of: &relays[rnd.IntN(len(relays))], size: 1 + rnd.Int64N(60), cancel: cancel, ended: make(chan error, 1)}
					visits = append(visits, v)
					go func() { v.ended <- r.enter(ctx, v.of, v.size) }()
				case open.in:
					open.gone = true
					r.leave(open.of, open.size)
				default:
					open.gone = true
					open.cancel(errGone)
				}
				synctest.Wait()
				waited := make([]bool, len(visits))
				for i, v := range visits {
					waited[i] = !v.in
				}
				expect(most, visits)
				for i, v := range visits {
					if !waited[i] {
						continue
					}
					select {
					case err := <-v.ended:
						if v.gone {
							require.ErrorIs(t, err, errGone)
							v.ended = nil
							continue
						}
						require.NoError(t, err)
						require.True(t, v.in, "seed %d: guest %d of %d is in", seed, i, len(visits))
					default:
						require.False(t, v.in, "seed %d: guest %d of %d waits", seed, i, len(visits))
					}
				}
			}
			for _, v := range visits {
				if v.in && !v.gone {
					r.leave(v.of, v.size)
				}
				v.cancel(errGone)
				v.gone = true
				synctest.Wait()
				expect(most, visits)
			}
			assert.Equal(t, int64(most), r.free)
			assert.Empty(t, r.inside)
			assert.Zero(t, r.waits.Len())
		})
	}
}

func pick(rnd *rand.Rand, visits []*visit, ok func(*visit) bool) *visit {
	for _, i := range rnd.Perm(len(visits)) {
		if ok(visits[i]) {
			return visits[i]
		}
	}
	return nil
}

// Who is let in and cancelled in the same moment leaves nothing behind.
func TestRoomLeftInTheMomentOfEntering(t *testing.T) {
	r, of := newRoom(10), &relayStats{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // either is taken by chance
		if r.enter(ctx, of, 10) == nil {
			r.leave(of, 10)
		}
		require.Equal(t, int64(10), r.free)
		require.Zero(t, r.waits.Len())
	}
}
