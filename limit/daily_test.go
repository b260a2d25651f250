package limit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/limit"
)

func TestDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := limit.NewDaily[string](2)
		require.Zero(t, d.Today("a"))
		began := time.Now()
		d.Add("a", 3)
		time.Sleep(24*time.Hour - 1)
		d.Add("a", 4)
		require.Equal(t, limit.Day{Since: began, Units: 7}, d.Today("a"))
		time.Sleep(time.Nanosecond)
		require.Zero(t, d.Today("a"))
		d.Add("b", 1)
		d.Add("a", 1)
		d.Add("c", 1)
		require.Zero(t, d.Today("b"), "it got none for longest")
		require.EqualValues(t, 1, d.Today("a").Units)
	})
}
