package gitserve

import (
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// filling is a disk that is full after some bytes.
type filling struct {
	*os.File
	full *os.File
	most int64
}

// WriteAt implements [io.WriterAt].
func (f filling) WriteAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > f.most {
		return f.full.WriteAt(p, at)
	}
	return f.File.WriteAt(p, at)
}

// On a disk without any room every clone that was not small broke off.
func TestAnswersGoOnWhenTheDiskIsFull(t *testing.T) {
	text := make([]byte, 3<<20)
	for i := range text {
		text[i] = byte(i >> 8 * i)
	}
	for _, most := range []int64{0, 100_000, 2 << 20} {
		{
			full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
			require.NoError(t, err)
			file, err := os.CreateTemp(t.TempDir(), "")
			require.NoError(t, err)
			to := httptest.NewRecorder()
			s := &spool{
				ResponseWriter: to, file: filling{file, full, most}, most: maxAhead, asked: leastAhead,
				room: func(int64) error { return nil }, done: make(chan struct{}),
			}
			s.news = sync.NewCond(&s.mu)
			ctx, cancel := context.WithCancel(t.Context())
			go s.run(ctx)
			for rest := text; len(rest) > 0; {
				n, err := s.Write(rest[:min(len(rest), 50_000)])
				require.NoError(t, err)
				rest = rest[n:]
			}
			s.close()
			cancel()
			require.True(t, bytes.Equal(text, to.Body.Bytes()))
			require.NoError(t, full.Close())
			_ = file.Close() // it may be closed
		}
	}
}
