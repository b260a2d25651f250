package wstransport

import "io"

const (
	// maxEmpty is the maximum number of received bytes without content: frames without payload, or
	// compressed blocks without text. The websocket library skips them without limit and does not
	// report them.
	maxEmpty = 128 << 10
	// perMessage is the overhead of frames and compression for a short message, and perControl the
	// size of the largest ping.
	perMessage, perControl = 64, 2 + 125
)

// framing counts the bytes below the websocket library, and fails if too many of them have no
// content. The goroutine that reads owns it.
type framing struct {
	io.ReadWriteCloser
	empty int
}

// Read implements [io.Reader].
func (f *framing) Read(p []byte) (int, error) {
	n, err := f.ReadWriteCloser.Read(p)
	if f.empty += n; f.empty > maxEmpty {
		return 0, errEmpty
	}
	return n, err
}

// message records the beginning of a message.
func (f *framing) message() { f.came(perMessage) }

// text records received content. Incompressible text has additional frames and blocks.
func (f *framing) text(n int) { f.came(2 * n) }

// control records a ping or pong.
func (f *framing) control() { f.came(perControl) }

func (f *framing) came(n int) { f.empty = max(0, f.empty-n) }
