package upload

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/graspsync/graspsync/purgatory/internal/pktline"
)

// ErrProtocol is wrapped by errors about violations of the protocol.
var ErrProtocol = errors.New("not git's smart HTTP protocol")

type reader struct {
	r       *bufio.Reader
	packets pktline.Reader
}

func newReader(from io.Reader) *reader {
	r := bufio.NewReaderSize(from, pktline.MaxSize)
	return &reader{r: r, packets: pktline.Reader{R: r}}
}

// next reads a packet, which is valid until the next call. The error is io.EOF at the end.
func (r *reader) next() (pktline.Kind, []byte, error) {
	k, payload, err := r.packets.Next()
	if errors.Is(err, pktline.ErrMalformed) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return k, payload, err
}

func (r *reader) line() (pktline.Kind, string, error) {
	k, payload, err := r.next()
	if n := len(payload); n > 0 && payload[n-1] == '\n' {
		payload = payload[:n-1]
	}
	return k, string(payload), err
}
