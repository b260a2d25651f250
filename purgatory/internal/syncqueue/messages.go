package syncqueue

import (
	"time"

	"github.com/graspsync/graspsync"
)

// Origin is the source of an event.
type Origin uint8

// The sources of events.
const (
	BySync Origin = iota
	ByUser
)

// Outcome is the result of a request.
type Outcome uint8

// The outcomes of a request. From TooMuch on, the reply exceeded a limit.
const (
	Complete Outcome = iota // nothing is missing any more
	Partial                 // objects arrived, and others are missing
	Nothing                 // the server had none of the missing objects
	Failed                  // for example a lost connection
	Broken                  // the server has a lasting failure, such as an unknown name
	Unasked                 // no request was sent
	Full                    // our repositories have no room
	TooMuch                 // too many bytes or objects
	NoRoom                  // a pull request may have no ref
	Slow                    // the time limit was exceeded
)

// Input is an input of [SyncQueue.Step].
type Input interface{ input() }

// The inputs of a SyncQueue.
type (
	// Wanted adds a repository that lacks data. URLs are the clone URLs of its members, Strangers
	// the others in the pull requests of each author.
	Wanted struct {
		Repo      graspsync.RepoRef
		URLs      []graspsync.CloneURL
		Strangers [][]graspsync.CloneURL
		Origin    Origin
		Fresh     bool // for a new event, which resets the attempt count
		Patient   bool // no held event needs the data, so that the wait doubles to 24 h
	}
	// Whole removes a repository that lacks nothing.
	Whole struct{ Repo graspsync.RepoRef }
	// Fetched ends a Fetch. Pause is the pause that a busy server asks for. More means that the
	// server may have other missing objects.
	Fetched struct {
		ID      RequestID
		Outcome Outcome
		Pause   time.Duration
		More    bool
	}
	// Tick is due at [SyncQueue.NextWake]. Received is the number of bytes of each request.
	Tick struct{ Received map[RequestID]int64 }
)

func (Wanted) input()  {}
func (Whole) input()   {}
func (Fetched) input() {}
func (Tick) input()    {}

// Effect is an action for the caller.
type Effect interface{ effect() }

// The effects of a Step.
type (
	// Fetch requests the missing objects from a URL. The caller answers with Fetched. Attempt and
	// Recent (requests to the domain in 60 s) include this one, for Restore.
	Fetch struct {
		ID      RequestID
		Repo    graspsync.RepoRef
		URL     graspsync.CloneURL
		Attempt int
		Wait    time.Duration
		Recent  int
	}
	// Stop stops a slow Fetch because another owner or author waits. The caller answers with
	// Fetched.
	Stop struct{ ID RequestID }
	// Dropped reports a repository without room in the queue.
	Dropped struct{ Repo graspsync.RepoRef }
)

func (Fetch) effect()   {}
func (Stop) effect()    {}
func (Dropped) effect() {}

// RequestID identifies a Fetch.
type RequestID uint64
