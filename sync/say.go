package sync

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/seldom"
)

// class says what a line of the log is about that holds a stranger's words. There
// is at most one a minute of each class and host, however many relays a host has.
type class uint8

const (
	classNotice class = iota
	classRefusal
	classRateLimit
	classHostile
	classFailed // attempts
	classLost
	classBatch
	classLearned
	classAside
	classGap
	classLastingGap
	classIncomplete
)

// says remembers when what was logged.
type says struct{ seldom.Lines[sayKey] }

type sayKey struct {
	host  string
	class class
}

// mayLog reports whether a line with a stranger's words may be logged now.
func (m *SyncManager) mayLog(u graspsync.RelayURL, c class) bool {
	return m.says.May(sayKey{u.HostPort().Host, c}, time.Now())
}
