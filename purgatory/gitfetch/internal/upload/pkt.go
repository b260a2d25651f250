package upload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
)

type kind uint8

const (
	data  kind = iota
	flush      // 0000
	delim      // 0001
	end        // 0002, response-end
)

// maxPacket is the maximum size of a pkt-line with its length (gitprotocol-common).
const maxPacket = 65520

// ErrProtocol is wrapped by errors about violations of the protocol.
var ErrProtocol = errors.New("not git's smart HTTP protocol")

type reader struct {
	r   *bufio.Reader
	buf [maxPacket]byte
}

func newReader(r io.Reader) *reader { return &reader{r: bufio.NewReaderSize(r, maxPacket)} }

// next reads a packet, which is valid until the next call. The error is io.EOF at the end.
func (r *reader) next() (kind, []byte, error) {
	if _, err := io.ReadFull(r.r, r.buf[:4]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: cut off in the length of a packet", ErrProtocol)
		}
		return 0, nil, err
	}
	n, err := strconv.ParseUint(string(r.buf[:4]), 16, 16)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("%w: packet of length %q", ErrProtocol, r.buf[:4])
	case n <= 2:
		return [...]kind{flush, delim, end}[n], nil, nil
	case n < 4 || n > maxPacket:
		return 0, nil, fmt.Errorf("%w: packet of %d bytes", ErrProtocol, n)
	}
	payload := r.buf[:n-4]
	if _, err := io.ReadFull(r.r, payload); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: cut off in a packet", ErrProtocol)
		}
		return 0, nil, err
	}
	return data, payload, nil
}

func (r *reader) line() (kind, string, error) {
	k, payload, err := r.next()
	if n := len(payload); n > 0 && payload[n-1] == '\n' {
		payload = payload[:n-1]
	}
	return k, string(payload), err
}

func appendLine(dst []byte, text string) []byte {
	return append(fmt.Appendf(dst, "%04x", len(text)+4), text...)
}

const (
	flushPacket = "0000"
	delimPacket = "0001"
)
