package hunt

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// entry is a repository that something is missing of.
type entry struct {
	repo    graspsync.RepoRef
	urls    []graspsync.CloneURL
	own     int      // of urls, the first: the others are named by strangers
	sites   []string // of urls, as far as they were asked for
	version uint64   // counts how often it was wanted
	due     time.Time
	number  int                        // attempts that did not complete, in a row
	stops   map[graspsync.CloneURL]int // of its requests, for others
	running bool
	slow    bool // its last request took long
	looks   bool // what isSlow found out in a step
	looked  uint64
	again   bool // it was wanted anew while an attempt was under way, or left for others
	delay   time.Duration
	asking  RequestID                        // of the attempt; 0: none
	second  RequestID                        // besides; 0: none
	tried   map[graspsync.CloneURL]try       // by the attempt; nil: there is none
	queued  map[graspsync.CloneURL]time.Time // left to their domains, since when
	asked   map[graspsync.CloneURL]time.Time
	further map[graspsync.CloneURL]int // how often each was asked for more, since the attempt began
	old     bool                       // the last one that it asked was one that it had tried
}

// isOwn reports whether it is not strangers only who name a URL.
func (e *entry) isOwn(u graspsync.CloneURL) bool { return slices.Contains(e.urls[:e.own], u) }

// try is what an attempt has asked a server.
type try struct {
	at    time.Time
	times int
}

func (e *entry) tries(now time.Time, u graspsync.CloneURL) {
	e.old = e.tried[u].times > 0
	e.tried[u] = try{now, e.tried[u].times + 1}
}
