package relaytest

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/graspsync/graspsync/sync/internal/negentropy"
)

type negSession struct {
	set      *negentropy.Set
	inFlight bool // the last answer was not delivered yet
	items    int  // number of records of the filter
	rounds   int
	last     time.Time
}

func negReply(b *Behavior, s *negSession, msg []byte) ([]byte, error) {
	const version = 0x61
	toInfinity := []byte{version, 0, 0} // one unbounded range
	switch b.Negentropy {
	case NegEndless:
		sum := sha256.Sum256(fmt.Append(nil, "endless", s.rounds))
		return append(append(toInfinity, 1), sum[:16]...), nil
	case NegGarbage:
		return []byte{version, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, nil
	case NegHugeList:
		return append(toInfinity, 2, 0xc0, 0x80, 0x80, 0x00), nil
	}
	return negentropy.Answer(s.set, msg, or(b.NegFrame, 500_000))
}
