package gitserve

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// command is one change that a push asks for. A zero id stands for git's null id.
type command struct {
	ref      nip34.RefName
	old, new nip34.ObjectID
	at       int64 // where the old id is in the request
}

// request is what comes before the pack of a push.
type request struct {
	commands []command
	report   bool // the client wants to be told about each ref
	sideband bool // as packets of band 1
	atomic   bool // all that it asks for, or nothing
}

// names are the refs that are to be changed.
func (r request) names() []nip34.RefName {
	out := make([]nip34.RefName, len(r.commands))
	for i, c := range r.commands {
		out[i] = c.ref
	}
	return out
}

// errRequest is wrapped by what is wrong with a push as such.
var errRequest = errors.New("push not understood")

// pktHead is the length of what is before the text of a packet line, in bytes.
const pktHead = 4

// maxLine is the longest packet line (pkt-line) that git writes.
const maxLine = 65520

// readRequest reads the commands of a push, up to the flush packet that ends them, and
// no byte more. It reads at most maxBytes and takes at most maxCommands. A reader that
// ends early is an error that wraps [io.ErrUnexpectedEOF].
func readRequest(r io.Reader, maxCommands, maxBytes int) (request, error) {
	var req request
	in := &io.LimitedReader{R: r, N: int64(maxBytes)}
	lines := 0
	for {
		at := int64(maxBytes) - in.N + pktHead
		line, flush, err := readLine(in)
		switch {
		case err != nil && in.N <= 0:
			return req, fmt.Errorf("%w: more than %d bytes of commands", errRequest, maxBytes)
		case err != nil:
			return req, err
		case flush:
			return req, nil
		case lines == maxCommands:
			return req, fmt.Errorf("%w: more than %d refs", errRequest, maxCommands)
		}
		lines++
		if err := req.add(line, at); err != nil {
			return req, err
		}
	}
}

// add takes in one line, that begins somewhere; the first of a command has the client's
// capabilities behind a NUL. Before the commands are the commits at which the history of
// the client ends, if it has no more: git finds out which refs could not do without that,
// and refuses them.
func (r *request) add(line []byte, at int64) error {
	text, capabilities, has := bytes.Cut(line, []byte{0})
	if has && len(r.commands) > 0 {
		return fmt.Errorf("%w: NUL in a command", errRequest)
	}
	for c := range strings.FieldsSeq(string(capabilities)) {
		switch {
		case c == "report-status", c == "report-status-v2":
			r.report = true
		case c == "side-band-64k":
			r.sideband = true
		case c == "atomic":
			r.atomic = true
		case c == "push-options", strings.HasPrefix(c, "push-cert="):
			return fmt.Errorf("%w: push options and certificates are not taken", errRequest)
		}
	}
	words := strings.SplitN(strings.TrimSuffix(string(text), "\n"), " ", 3)
	switch {
	case words[0] == "shallow" && len(words) == 2 && len(r.commands) == 0 && !has:
		id, err := parseID(words[1])
		if err == nil && id.IsZero() {
			err = fmt.Errorf("%w: no commit", errRequest)
		}
		return err
	case words[0] == "push-cert":
		return fmt.Errorf("%w: certificates are not taken", errRequest)
	case len(words) != 3:
		return fmt.Errorf("%w: not a command", errRequest)
	}
	old, err := parseID(words[0])
	if err != nil {
		return err
	}
	updated, err := parseID(words[1])
	if err != nil {
		return err
	}
	ref, err := parseRef(words[2])
	if err != nil {
		return err
	}
	r.commands = append(r.commands, command{ref: ref, old: old, new: updated, at: at})
	return nil
}

func parseID(s string) (nip34.ObjectID, error) {
	id, err := nip34.ParseObjectID(s)
	if err != nil {
		return id, fmt.Errorf("%w: %w", errRequest, err)
	}
	if strings.Trim(s, "0") == "" {
		return nip34.ObjectID{}, nil
	}
	return id, nil
}

// parseRef reads the name of a branch, a tag or the ref of an event.
func parseRef(s string) (nip34.RefName, error) {
	if digits, ok := strings.CutPrefix(s, "refs/nostr/"); ok {
		id, err := graspsync.ParseEventID(digits)
		if err != nil {
			return nip34.RefName{}, fmt.Errorf("%w: refs/nostr/ wants the id of an event", errRequest)
		}
		return nip34.EventRef(id), nil
	}
	ref, err := nip34.ParseRefName(s)
	if err != nil {
		return ref, fmt.Errorf("%w: only branches, tags and refs/nostr/<event id> can be pushed", errRequest)
	}
	return ref, nil
}

// readLine reads one packet line.
func readLine(r io.Reader) (line []byte, flush bool, err error) {
	var head [pktHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, false, early(err)
	}
	length, err := hex.DecodeString(string(head[:]))
	if err != nil {
		return nil, false, fmt.Errorf("%w: not a packet line", errRequest)
	}
	switch n := int(binary.BigEndian.Uint16(length)); {
	case n == 0:
		return nil, true, nil
	case n <= pktHead || n > maxLine:
		return nil, false, fmt.Errorf("%w: packet line of %d bytes", errRequest, n)
	default:
		line = make([]byte, n-pktHead)
	}
	if _, err := io.ReadFull(r, line); err != nil {
		return nil, false, early(err)
	}
	return line, false, nil
}

func early(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// capabilities are what a client may ask for that pushes, before the object format: what git
// receive-pack offers as we run it.
const capabilities = "report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta"

// writeRefs tells a client that wants to push what refs there are, as git receive-pack does.
func writeRefs(w io.Writer, protocol string, refs map[string]nip34.ObjectID, format nip34.ObjectFormat) error {
	out := bufio.NewWriter(w)
	if protocol != "version=2" { // of which there is none for pushes
		writeLine(out, "# service="+receivePack+"\n")
		_, _ = out.WriteString(flushPacket) // the error stays
	}
	if protocol == "version=1" {
		writeLine(out, "version 1\n")
	}
	can := "\x00" + capabilities + " object-format=" + format.String() + " agent=graspsync"
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		writeLine(out, refs[name].String()+" "+name+can+"\n")
		can = ""
	}
	if can != "" {
		writeLine(out, barerepo.Null(format)+" capabilities^{}"+can+"\n")
	}
	_, err := out.WriteString(flushPacket)
	return errors.Join(err, out.Flush())
}

// writeReport tells a client that nothing of a push was done: refused has the reasons of
// some refs. It is what git receive-pack would say.
func writeReport(w io.Writer, req request, refused map[nip34.RefName]string) error {
	results := make(map[nip34.RefName]string, len(req.commands))
	for _, c := range req.commands {
		results[c.ref] = refusedOther
	}
	maps.Copy(results, refused)
	return writeResults(w, req, results, "")
}

// writeResults tells a client of each ref that it was pushed, or why it was not, as git
// receive-pack does, and says something to who reads that.
func writeResults(w io.Writer, req request, refused map[nip34.RefName]string, word string) error {
	var report bytes.Buffer
	writeLine(&report, "unpack ok\n")
	for _, c := range req.commands {
		if reason, ok := refused[c.ref]; ok {
			writeLine(&report, "ng "+c.ref.String()+" "+reason+"\n")
		} else {
			writeLine(&report, "ok "+c.ref.String()+"\n")
		}
	}
	report.WriteString("0000")
	out := bufio.NewWriter(w)
	if !req.sideband {
		_, err := out.Write(report.Bytes())
		return errors.Join(err, out.Flush())
	}
	if word != "" {
		writeLine(out, "\x02"+word+"\n")
	}
	for report.Len() > 0 {
		writeLine(out, "\x01"+string(report.Next(maxLine-pktHead-1)))
	}
	_, err := out.WriteString("0000")
	return errors.Join(err, out.Flush())
}

// writeLine writes a packet line. The error stays in the writer.
func writeLine(w io.Writer, text string) {
	_, _ = fmt.Fprintf(w, "%04x%s", len(text)+pktHead, text)
}
