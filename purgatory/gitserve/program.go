package gitserve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

func settings() []string { return append(gitrun.Settings(), constants...) }

var constants = []string{
	// Packing must fit into the memory limit on any number of processors.
	"-c", "pack.threads=1",
	"-c", "receive.advertisePushOptions=false",
	"-c", "uploadpack.allowTipSHA1InWant=true",
	"-c", "uploadpack.allowReachableSHA1InWant=true",
	"-c", "uploadpack.allowFilter=true",
	// Other filters compare each path with a list that the client chooses.
	"-c", "uploadpackfilter.allow=false",
	"-c", "uploadpackfilter.blob:none.allow=true",
	"-c", "uploadpackfilter.blob:limit.allow=true",
	"-c", "uploadpackfilter.tree.allow=true",
	"-c", "uploadpackfilter.tree.maxDepth=0",
	"-c", "uploadpackfilter.object:type.allow=true",
}

// call is a run of git, whose arguments contain no text of clients.
type call struct {
	dir      string   // folder of the repository
	args     []string // git service with options
	kind     string   // content type of the answer
	prefix   string   // start of the answer
	protocol string   // git protocol version; empty: version 0
	body     *body    // may be nil
	limits   gitrun.Limits
}

// fetchMemory returns the memory of a fetch in total, and per process. pack-objects needs about 320
// bytes per object, upload-pack may need the same, and both read the request.
func fetchMemory(m *gitrun.Memory, dir string, request int64) (all, each int64) {
	objects, unpacked := gitrun.Packs(dir)
	each = min(16<<20+max(8<<20, 320*objects)+unpacked+4*request, m.Part/2-helperMemory/2)
	return 2*each + helperMemory, each
}

// pushMemory returns the memory of a git run for a push of size bytes in total, and per process.
// The pack may contain deltas of large objects of the repository.
func pushMemory(m *gitrun.Memory, dir string, size int64) (all, each int64) {
	_, unpacked := gitrun.Packs(dir)
	all = min(256<<20+2*size+unpacked, m.Part)
	return all, all - helperMemory
}

// helperMemory is the memory of the programs that a git run starts beside the large ones, in bytes.
const helperMemory = 16 << 20

// serve runs git to answer a request. Git is killed if ctx ends or the client stops reading. begun
// reports whether a part of the answer was written. If git refused the request, the error is a
// refusal with status 403.
func (h *Handler) serve(ctx context.Context, w *clientWriter, c call) (begun bool, err error) {
	var in io.Reader
	if c.body != nil {
		in = c.body.file
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := writerFunc(func(p []byte) (int, error) {
		if !begun {
			begun = true
			_, _ = io.WriteString(w, c.prefix) // the next write fails too
		}
		n, err := w.Write(p)
		if ferr := w.FlushError(); err == nil && !errors.Is(ferr, http.ErrNotSupported) {
			err = ferr
		}
		if err != nil {
			cancel()
		}
		return n, err
	})
	setNoCache(w.Header(), c.kind)
	err = h.git.Run(ctx, gitrun.Child{
		Dir: c.dir, Args: append(slices.Clone(c.args), "."), Env: []string{"GIT_PROTOCOL=" + c.protocol},
		Stdin: in, Stdout: out, Limits: c.limits, Nice: true,
	})
	if failed := (*gitrun.Error)(nil); errors.As(err, &failed) {
		if why := reasons(failed); requestFault.MatchString(why) {
			err = &refusal{status: http.StatusForbidden, text: why}
		}
	}
	return begun, err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var requestFault = regexp.MustCompile("protocol error|unknown capability|no command requested|invalid command|already requesting command|" +
	"unexpected line|mismatched object format|remote end hung up|expected SHA1|invalid shallow|[Dd]eepen|not negotiated|" +
	"no commits selected|filter|not our ref|unadvertised object")

func setNoCache(h http.Header, kind string) {
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	h.Set("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
}

func reasons(failed *gitrun.Error) string {
	var out []string
	for line := range strings.FieldsFuncSeq(failed.Stderr, func(r rune) bool { return r == '\n' || r == '\r' }) {
		if _, text, ok := strings.Cut(line, ": "); ok && (strings.HasPrefix(line, "error") || strings.HasPrefix(line, "fatal")) {
			out = append(out, text)
		}
	}
	return graspsync.Printable(strings.Join(out, "; "))
}
