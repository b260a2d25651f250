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
		"distrust":           {distrust, 8},
		"recordAuthors":      {recordAuthors, 128},
		"recordCategories":   {recordCategories, 256},
		"otherKinds":         {otherKinds, -1},
		"maxRelayTab":        {maxRelayTab, 65_535},
		"linksPerEntry":      {linksPerEntry, 16},
		"noTime":             {int(noTime), -1},
		"laterShift":         {laterShift, 5},
		"laterTries":         {laterTries, 7},
		"laterAsks":          {laterAsks, 4},
		"fateAccepted":       {int(fateAccepted), 0b1},
		"fateAsked":          {int(fateAsked), 0b100},
		"fateJudged":         {int(fateJudged), 0b1000},
		"fateLater":          {int(fateLater), 0b1110_0000},
		"rejectedVersion":    {rejectedVersion, 1},
		"chunkEntries":       {chunkEntries, 1_000},
		"maxChunk":           {maxChunk, 3 << 20},
		"manyDependencies":   {manyDependencies, 16},
		"maxMany":            {maxMany, 256 << 10},
		"maxRelayText":       {maxRelayText, 2_048},
		"maxRejectedChunks":  {maxRejectedChunks, 10_000},
		"tenureBytes":        {tenureBytes, 40},
		"tenuresChunk":       {tenuresChunk, 1_000},
		"mostSpent":          {mostSpent, 10_000},
		"mostAbout":          {mostAbout, 8},
		"wholeTries":         {wholeTries, 4},
		"failingShare":       {failingShare, 8},
		"maxOwed":            {maxOwed, 10_000},
		"maxAsks":            {maxAsks, 13},
		"askOwed":            {askOwed, 250},
		"probes":             {probes, 8},
		"reserved":           {reserved, 4},
		"setLoads":           {setLoads, 4},
		"maxSetTime":         {maxSetTime, 1 << 53},
		"leastMessage":       {leastMessage, 1_024},
		"maxAside":           {maxAside, 1_000},
		"cutsBelieved":       {cutsBelieved, 2},
		"cutsDoubted":        {cutsDoubted, 6},
		"leastSaid":          {leastSaid, 4_096},
		"mostSaid":           {mostSaid, 131_072},
		"mostFilters":        {mostFilters, 100},
		"leastSubscriptions": {leastSubscriptions, 2},
		"mostSubscriptions":  {mostSubscriptions, 200},
		"leastPageLimit":     {leastPageLimit, 5},
		"leastFrame":         {leastFrame, 4_096},
		"mostUnread":         {mostUnread, 4},
		"liveShare":          {liveShare, 2},
		"leastPatience":      {leastPatience, 16},
		"splitPatience":      {splitPatience, 2},
		"slowTries":          {slowTries, 4},
		"statusShare":        {statusShare, 20},
	} {
		require.Equal(t, got[1], got[0], name)
	}
	for name, got := range map[string][2]time.Duration{
		"ownBackoff":    {ownBackoff, time.Second},
		"ownBackoffMax": {ownBackoffMax, time.Minute},
		"ownHeld":       {ownHeld, time.Minute},
		"ownRecheck":    {ownRecheck, 900 * time.Second},
		"laterFirst":    {laterFirst, time.Hour},
		"laterMost":     {laterMost, 1_200 * time.Minute},
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
		"abreast":       {abreast, 5_000 * time.Millisecond},
		"skipPause":     {skipPause, time.Minute},
		"skipMost":      {skipMost, 600 * time.Second},
		"statusAge":     {statusAge, time.Second},
		"believed":      {believed, 1_440 * time.Minute},
		"largeCut":      {largeCut, 10_000 * time.Millisecond},
		"sayTrouble":    {sayTrouble, time.Minute},
		"slowMost":      {slowMost, time.Minute},
	} {
		require.Equal(t, got[1], got[0], name)
	}
}
