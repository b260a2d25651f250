package admin

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
)

// A clock that was an hour ahead at the start, and was set right since, kept owners out for that hour.
func TestClockSetBackAfterTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &auth{started: time.Now(), used: &used{store: state.NewMemory()}}
		time.Sleep(10 * time.Second)
		now := time.Now().Add(-time.Hour)
		for ago, want := range map[time.Duration]bool{0: false, 9 * time.Second: false, 10 * time.Second: true, time.Minute: true} {
			after, err := a.after(t.Context(), now)
			require.NoError(t, err)
			require.Equal(t, want, now.Add(-ago).Unix() <= after, "%v", ago)
		}
	})
}
