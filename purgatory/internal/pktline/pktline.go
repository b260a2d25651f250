// Package pktline reads and writes the packet lines of git (gitprotocol-common).
package pktline

import (
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Kind is the kind of a packet.
type Kind uint8

// The kinds of packets.
const (
	Data  Kind = iota
	Flush      // 0000
	Delim      // 0001
	End        // 0002, response-end
)

// Packets without data.
const (
	FlushPacket = "0000"
	DelimPacket = "0001"
)

// Head is the size of the length of a packet, MaxSize the maximum size of a packet with it.
const (
	Head    = 4
	MaxSize = 65520
)

// ErrMalformed is wrapped by errors about packets that violate the protocol.
var ErrMalformed = errors.New("not a packet line")

// Reader reads packets, and nothing after them.
type Reader struct {
	R   io.Reader
	buf [MaxSize]byte
}

// Next reads a packet, whose data is valid until the next call. The error is io.EOF at the end, and
// wraps io.ErrUnexpectedEOF within a packet.
func (r *Reader) Next() (Kind, []byte, error) {
	if _, err := io.ReadFull(r.R, r.buf[:Head]); err != nil {
		return 0, nil, err
	}
	n, err := strconv.ParseUint(string(r.buf[:Head]), 16, 16)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("%w: length %q", ErrMalformed, r.buf[:Head])
	case n <= 2:
		return [...]Kind{Flush, Delim, End}[n], nil, nil
	case n < Head || n > MaxSize:
		return 0, nil, fmt.Errorf("%w: %d bytes", ErrMalformed, n)
	}
	data := r.buf[:n-Head]
	if _, err = io.ReadFull(r.R, data); errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return Data, data, err
}

// Line returns a packet with a text.
func Line(text string) string { return fmt.Sprintf("%04x%s", len(text)+Head, text) }
