package sync

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/seldom"
	"github.com/graspsync/graspsync/sync/wire"
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
func (m *SyncManager) mayLog(u filters.RelayURL, c class) bool {
	return m.says.May(sayKey{u.Authority().Host, c}, time.Now())
}

// clean makes a stranger's text safe to show: of bounded length, in valid UTF-8 and
// without anything that moves a cursor, changes a colour or turns the direction of
// what follows.
func clean(s string) string {
	if len(s) > wire.MaxText {
		s = s[:wire.MaxText]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
	for len(s) > wire.MaxText { // what replaces a byte takes three
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}
