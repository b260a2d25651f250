package embedding

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/seldom"
)

// MsgUnread is the message for a client whose query failed.
const MsgUnread = "error: the store could not be read, try again later"

// CloseFrame is the type of a close frame, internalError a status (RFC 6455).
const (
	CloseFrame    = 8
	internalError = 1011
)

// Questions handles failed queries of clients. Clients receive an error, because an incomplete
// answer would look complete. It is safe for concurrent use.
type Questions struct {
	log    *slog.Logger // read-only
	closed atomic.Bool
	lines  seldom.Lines[struct{}]
}

// NewQuestions returns a Questions that logs failures to log.
func NewQuestions(log *slog.Logger) *Questions { return &Questions{log: log} }

// Close refuses all later queries with [MsgEnding].
func (q *Questions) Close() { q.closed.Store(true) }

// Closed reports whether Close was called.
func (q *Questions) Closed() bool { return q.closed.Load() }

// Unanswered returns the message for the client of a failed query, and logs once per minute.
func (q *Questions) Unanswered(err error) (why string) {
	if errors.Is(err, eventstoreadapter.ErrClosed) {
		return MsgEnding
	}
	if q.lines.May(struct{}{}, time.Now()) {
		q.log.Error("reading the store for a client failed", "err", err)
	}
	return MsgUnread
}

// Closing returns the payload of a [CloseFrame] with a reason.
func Closing(why string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, internalError), why...)
}
