package syncqueue

import (
	"time"

	"github.com/graspsync/graspsync"
)

// Origin is the way in which an event came that waits for git data.
type Origin uint8

// The origins.
const (
	BySync Origin = iota
	ByUser
)

// Outcome is the result of a request.
type Outcome uint8

// The outcomes of a request.
const (
	Complete Outcome = iota // the repository lacks nothing any more
	Partial                 // the server delivered objects, and others are missing
	Nothing                 // the server had none of the missing objects, or failed
	Broken                  // it failed in a way that does not pass soon, such as an unknown name
	Unasked                 // no request was made
)

// Input is something that happened.
type Input interface{ input() }

// The inputs.
type (
	// Wanted says that an event of the repository waits for git data. URLs are the clone URLs of its members,
	// Strangers those that only pull requests name, by author. The attempt count begins anew.
	Wanted struct {
		Repo      graspsync.RepoRef
		URLs      []graspsync.CloneURL
		Origin    Origin
		Strangers [][]graspsync.CloneURL
	}
	// Renew makes the attempt at a repository due now, and ends the pauses of its servers and of those of
	// these URLs.
	Renew struct {
		Repo graspsync.RepoRef
		URLs []graspsync.CloneURL
	}
	// Whole says that the repository lacks nothing any more.
	Whole struct{ Repo graspsync.RepoRef }
	// Fetched ends a Fetch. Pause is how long a busy server asks to be left alone, or 0. More says that the
	// server may have missing objects that it was not asked for.
	Fetched struct {
		ID      RequestID
		Outcome Outcome
		Pause   time.Duration
		More    bool
	}
	// Tick is due at [SyncQueue.NextWake]. Received is the number of bytes that each request brought.
	Tick struct{ Received map[RequestID]int64 }
)

func (Wanted) input()  {}
func (Renew) input()   {}
func (Whole) input()   {}
func (Fetched) input() {}
func (Tick) input()    {}

// Effect is something to be done.
type Effect interface{ effect() }

// The effects.
type (
	// Fetch asks a URL for the missing objects. A Fetched follows always. Attempt (incomplete attempts with
	// this one), Wait (after it) and Recent (requests to the domain in the last 60 s with this one) are for
	// Restore, in case the process ends before that.
	Fetch struct {
		ID      RequestID
		Repo    graspsync.RepoRef
		URL     graspsync.CloneURL
		Attempt int
		Wait    time.Duration
		Recent  int
	}
	// Stop ends a slow Fetch because another owner, or another author of pull requests, waits. A Fetched follows.
	Stop struct{ ID RequestID }
	// Attempted reports the end of an attempt. Next is when the next one is due; zero if there is none.
	Attempted struct {
		Repo   graspsync.RepoRef
		Number int // in a row, from 1
		Next   time.Time
	}
	// Dropped reports a repository for which there was no room.
	Dropped struct{ Repo graspsync.RepoRef }
)

func (Fetch) effect()     {}
func (Stop) effect()      {}
func (Attempted) effect() {}
func (Dropped) effect()   {}

// RequestID names a Fetch. It is never used twice.
type RequestID uint64
