package embedding

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

func event(kind int) *nostr.Event { return &nostr.Event{Kind: kind} }

// The disk is measured at most once a second and a full disk is logged at most once a minute,
// however many events arrive.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		var left uint64 = 1000
		var err error
		asked := 0
		r := NewRoom(func() (uint64, error) {
			asked++
			if left == 7 {
				panic("a callback of the embedder's")
			}
			return left, err
		}, 1000, slog.New(slog.NewTextHandler(&said, nil)))
		lines := func(what string) int { return strings.Count(said.String(), what) }
		note, deletion, vanish, typing := event(1), event(5), event(62), event(20001)
		for range 3 {
			require.NoError(t, r.Of(note))
		}
		require.Equal(t, 1, asked)
		left = 999
		time.Sleep(roomPeriod - 1)
		require.NoError(t, r.Of(note))
		time.Sleep(time.Nanosecond)
		for range 5 {
			require.ErrorIs(t, r.Of(note), ErrRoom)
			require.NoError(t, r.Of(deletion))
			require.NoError(t, r.Of(vanish))
			require.NoError(t, r.Of(typing))
		}
		require.Equal(t, 2, asked)
		require.Equal(t, 1, lines("level=WARN"))
		time.Sleep(time.Minute)
		require.Error(t, r.Of(note))
		require.Equal(t, 2, lines("level=WARN"))
		for has, may := range map[uint64]bool{250: true, 249: false} {
			left = has
			time.Sleep(roomPeriod)
			require.Equal(t, may, r.Of(deletion) == nil, "%d", has)
			require.Equal(t, may, r.Of(vanish) == nil, "%d", has)
			require.NoError(t, r.Of(typing), "nobody stores it")
		}
		left = 2000
		time.Sleep(roomPeriod)
		require.NoError(t, r.Of(note))
		require.NoError(t, r.Of(note))
		err = errors.New("stale file handle")
		time.Sleep(roomPeriod)
		require.ErrorIs(t, r.Of(note), err)
		require.ErrorIs(t, r.Of(deletion), ErrRoom)
		left, err = 7, nil
		time.Sleep(roomPeriod)
		require.ErrorIs(t, r.Of(note), ErrRoom)
		left = 2000
		time.Sleep(roomPeriod)
		require.NoError(t, r.Of(note))
		require.NoError(t, NewRoom(nil, 1000, nil).Of(note), "nobody says what there is")
	})
}
