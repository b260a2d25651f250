package purgatory_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/purgatory"
)

// If two servers that sync ask each other for data that is not there yet, no warning is logged. A
// server that has not replied for an hour causes one.
func TestCaseC28_NormalLifeIsNoWarning(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		warn bool
	}{
		"not our ref":        {purgatory.ErrNotServed, false},
		"connection refused": {errors.New("connection refused"), true},
	} {
		t.Run(name, func(t *testing.T) {
			var log racetest.Buffer
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			run(t, purgatory.Config{Logger: logger, Times: purgatory.Times{Hold: 20 * time.Hour}}.With(purgatory.Fixed{MaxHold: 20 * time.Hour}), func(t *testing.T, w *world) {
				w.serveAlice()
				s := serving()
				s.Err = c.err
				w.git.Serve(clone("other.example/r.git"), s)
				w.held(carol.Event(now(), graspsync.KindPullRequest, "", nostrTag{"a", repoOf(alice).String()},
					nostrTag{"c", object(50).String()}, nostrTag{"clone", "https://other.example/r.git"}))
				wait(50 * time.Minute)
				require.Positive(t, w.p.Status().Fetches)
				require.Empty(t, log.String())
				wait(5 * time.Hour)
				require.Equal(t, c.warn, log.String() != "", log.String())
				if c.warn {
					require.Contains(t, log.String(), c.err.Error())
				}
			})
		})
	}
}
