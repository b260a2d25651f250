package embedding

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
)

// MsgUnread is what a client hears whose question could not be answered.
const MsgUnread = "error: the store could not be read, try again later"

// unreadEvery is how often it is said that the store can't be read.
const unreadEvery = time.Minute

// CloseFrame is the type of a close frame, and internalError the status for what failed here (RFC 6455).
const (
	CloseFrame    = 8
	internalError = 1011
)

// Questions are those of clients that can't be answered: they are told so, since an answer without what could not be
// read would look like all there is. It is made by [NewQuestions], and safe for concurrent use.
type Questions struct {
	log      *slog.Logger // read-only
	closed   atomic.Bool
	unreadAt atomic.Int64 // when it was said that the store could not be read, 0: never
}

// NewQuestions says in a log that the store can't be read.
func NewQuestions(log *slog.Logger) *Questions { return &Questions{log: log} }

// Close has no more answered: [MsgEnding] is said instead.
func (q *Questions) Close() { q.closed.Store(true) }

// Closed reports whether nothing is answered any more.
func (q *Questions) Closed() bool { return q.closed.Load() }

// Unanswered is what a client hears, since err, which is logged unless that was not long ago.
func (q *Questions) Unanswered(err error) (why string) {
	if errors.Is(err, eventstoreadapter.ErrClosed) {
		return MsgEnding
	}
	now := time.Now().UnixNano()
	last := q.unreadAt.Load()
	if (last == 0 || now-last >= int64(unreadEvery)) && q.unreadAt.CompareAndSwap(last, now) {
		q.log.Error("the store could not be read for a client", "err", err)
	}
	return MsgUnread
}

// Closing is what a [CloseFrame] has that says why.
func Closing(why string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, internalError), why...)
}
