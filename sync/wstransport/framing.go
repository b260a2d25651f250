package wstransport

import "io"

const (
	// maxEmpty is how much more a relay may send than what comes of it, in bytes: frames without
	// payload, or compressed blocks without text. The websocket library reads over these without end, and nobody above
	// it sees them.
	maxEmpty = 128 << 10
	// perMessage is what frames and compression add to a short message, and perControl the largest ping.
	perMessage, perControl = 64, 2 + 125
)

// framing counts what comes beneath the websocket library, and fails where nothing comes of it. Owned by the
// goroutine that reads.
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

// message notes that a message begins.
func (f *framing) message() { f.came(perMessage) }

// text notes that so much of a message has come. Text that can't be compressed has frames and blocks besides.
func (f *framing) text(n int) { f.came(2 * n) }

// control notes a ping or pong.
func (f *framing) control() { f.came(perControl) }

func (f *framing) came(n int) { f.empty = max(0, f.empty-n) }
