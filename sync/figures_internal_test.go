package sync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What others plan with, or an earlier version has written, is what was decided: times that
// relays and operators notice, bounds that memory was reckoned with, bits and sizes of what is
// kept. Whoever changes one changes it here as well.
func TestFiguresAreAsDecided(t *testing.T) {
	for name, got := range map[string][2]int{
		"wholeTries":     {wholeTries, 4},
		"forgeries":      {forgeries, 2_000},
		"failingShare":   {failingShare, 8},
		"maxOwed":        {maxOwed, 10_000},
		"maxAsks":        {maxAsks, 13},
		"askOwed":        {askOwed, 250},
		"setLoads":       {setLoads, 4},
		"maxSetTime":     {maxSetTime, 1 << 53},
		"leastPageLimit": {leastPageLimit, 5},
		"leastFrame":     {leastFrame, 4_096},
		"leastPatience":  {leastPatience, 16},
		"splitPatience":  {splitPatience, 2},
		"slowTries":      {slowTries, 4},
		"statusShare":    {statusShare, 20},
		"frameQueue":     {frameQueue, 4},
		"frameBytes":     {frameBytes, 65_536},
		"maxBad":         {maxBad, 512},
		"maxReasons":     {maxReasons, 100},
		"lackingIDs":     {lackingIDs, 2_048},
		"coverageRepos":  {coverageRepos, 1_024},
		"lookupRefs":     {lookupRefs, 16},
		"overrunShare":   {overrunShare, 4},
		"allStep":        {allStep, 100},
		"idsAtOnce":      {idsAtOnce, 500},
		"tagsAtOnce":     {tagsAtOnce, 100},
		"nearAtOnce":     {nearAtOnce, 100},
		"maxJournal":     {maxJournal, 100_000},
		"maxRecent":      {maxRecent, 16_384},
		"maxOfOne":       {maxOfOne, 1_024},
		"verifyBatch":    {verifyBatch, 512},
		"saveBatch":      {saveBatch, 256},
		"maxHolds":       {maxHolds, 100_000},
		"laterShare":     {laterShare, 4},
		"laterAskMost":   {laterAskMost, 100},
	} {
		require.Equal(t, got[1], got[0], name)
	}
	for name, got := range map[string][2]time.Duration{
		"ownBackoff":    {ownBackoff, time.Second},
		"ownBackoffMax": {ownBackoffMax, time.Minute},
		"ownHeld":       {ownHeld, time.Minute},
		"ownRecheck":    {ownRecheck, 900 * time.Second},
		"keepEvery":     {keepEvery, time.Minute},
		"lastWords":     {lastWords, 2_000 * time.Millisecond},
		"notDialed":     {notDialed, time.Minute},
		"retryFirst":    {retryFirst, time.Second},
		"retryMost":     {retryMost, 240 * time.Second},
		"owedFirst":     {owedFirst, time.Minute},
		"owedMost":      {owedMost, 240 * time.Minute},
		"askEvery":      {askEvery, time.Second},
		"missedFor":     {missedFor, 1_440 * time.Minute},
		"setAge":        {setAge, 30_000 * time.Millisecond},
		"settleEvery":   {settleEvery, time.Minute},
		"leastJump":     {leastJump, time.Minute},
		"aliveSlack":    {aliveSlack, time.Minute},
		"statusAge":     {statusAge, time.Second},
		"cutSoon":       {cutSoon, 10_000 * time.Millisecond},
		"sayTrouble":    {sayTrouble, time.Minute},

		"signTimeout":     {signTimeout, 15_000 * time.Millisecond},
		"settleLimit":     {settleLimit, 10_000 * time.Millisecond},
		"infoWait":        {infoWait, 2_000 * time.Millisecond},
		"peerLacksEvery":  {peerLacksEvery, 1_440 * time.Minute},
		"laterEvery":      {laterEvery, 5_000 * time.Millisecond},
		"laterAgain":      {laterAgain, time.Minute},
		"laterHurry":      {laterHurry, time.Second},
		"laterCalm":       {laterCalm, time.Minute},
		"laterAskEvery":   {laterAskEvery, time.Minute},
		"statusLeast":     {statusLeast, 100_000 * time.Microsecond},
		"statusEvery":     {statusEvery, time.Second},
		"statusMost":      {statusMost, time.Minute},
		"rescanFirst":     {rescanFirst, 10_000 * time.Millisecond},
		"rescanMostFirst": {rescanMostFirst, time.Minute},
		"rescanMost":      {rescanMost, time.Hour},
		"completeEvery":   {completeEvery, time.Minute},
		"resumeFirst":     {resumeFirst, time.Minute},
		"resumeMost":      {resumeMost, time.Hour},
	} {
		require.Equal(t, got[1], got[0], name)
	}
}
