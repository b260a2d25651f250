package absent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What an earlier version has written, and what memory was reckoned with, is what was decided.
func TestFiguresOfTheTableAreAsDecided(t *testing.T) {
	for name, got := range map[string][2]int{
		"linksPerEntry":     {linksPerEntry, 16},
		"noTime":            {int(noTime), -1},
		"laterShift":        {laterShift, 5},
		"laterTries":        {laterTries, 7},
		"laterAsks":         {laterAsks, 4},
		"fateAccepted":      {int(fateAccepted), 0b1},
		"fateAsked":         {int(fateAsked), 0b100},
		"fateJudged":        {int(fateJudged), 0b1000},
		"fateLater":         {int(fateLater), 0b1110_0000},
		"rejectedVersion":   {rejectedVersion, 1},
		"chunkEntries":      {chunkEntries, 1_000},
		"maxChunk":          {maxChunk, 3 << 20},
		"manyDependencies":  {manyDependencies, 16},
		"maxMany":           {maxMany, 256 << 10},
		"maxRelayText":      {maxRelayText, 2_048},
		"maxRejectedChunks": {maxRejectedChunks, 10_000},
		"maxDependencies":   {MaxDependencies, 10_000},
		"maxFulfilled":      {maxFulfilled, 1_000},
	} {
		require.Equal(t, got[1], got[0], name)
	}
	for name, got := range map[string][2]time.Duration{
		"laterFirst": {laterFirst, time.Hour},
		"laterMost":  {laterMost, 1_200 * time.Minute},
	} {
		require.Equal(t, got[1], got[0], name)
	}
}
