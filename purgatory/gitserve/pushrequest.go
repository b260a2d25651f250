package gitserve

import (
	"bufio"
	"bytes"
	"cmp"
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
	name     string // as the client wrote it
	ref      nip34.RefName
	old, new nip34.ObjectID
	staged   bool   // it is for an event that is not stored
	reason   string // why it is refused; empty: it is not
}

// request is what comes before the pack of a push.
type request struct {
	commands []*command
	report   bool // the client wants to be told about each ref
	sideband bool // as packets of band 1
	atomic   bool // all that it asks for, or nothing
	shallow  bool // the client lacks a part of the history
}

// hears reports whether the client reads a report, of which git shows more than of a status.
func (r *request) hears() bool { return r.report || r.sideband || len(r.commands) > 0 }

// left returns the commands that are not refused: those for events that are not stored, or the others.
func (r *request) left(staged bool) (out []*command) {
	for _, c := range r.commands {
		if c.reason == "" && c.staged == staged {
			out = append(out, c)
		}
	}
	return out
}

// refuse gives all commands that are not refused a reason.
func (r *request) refuse(reason string) {
	for _, c := range r.commands {
		c.reason = cmp.Or(c.reason, reason)
	}
}

// over reports whether nothing is left to be done, because all of it is refused, or some of it
// and the client wants all or nothing.
func (r *request) over() bool {
	refused := slices.ContainsFunc(r.commands, func(c *command) bool { return c.reason != "" })
	if r.atomic && refused {
		r.refuse(refusedOther)
	}
	return !slices.ContainsFunc(r.commands, func(c *command) bool { return c.reason == "" })
}

// names are the refs of commands.
func names(commands []*command) []nip34.RefName {
	out := make([]nip34.RefName, len(commands))
	for i, c := range commands {
		out[i] = c.ref
	}
	return out
}

// errRequest is wrapped by what is wrong with a push as such.
var errRequest = errors.New("push not understood")

// flushPacket ends the commands of a push, and its report.
const flushPacket = "0000"

// pktHead is the length of what is before the text of a packet line, in bytes.
const pktHead = 4

// maxLine is the longest packet line (pkt-line) that git writes.
const maxLine = 65520

// readRequest reads the commands of a push, up to the flush packet that ends them, and
// no byte more. It reads at most maxBytes, which alone bounds how shallow a client may be, and takes at
// most maxCommands. A reader that ends early is an error that wraps [io.ErrUnexpectedEOF]. With an error it returns the commands
// before that, whose client is told by a report.
func readRequest(r io.Reader, maxCommands, maxBytes int) (*request, error) {
	req := &request{}
	in := &io.LimitedReader{R: r, N: int64(maxBytes)}
	seen := make(map[string]*command)
	for {
		line, flush, err := readLine(in)
		switch {
		case err != nil && in.N <= 0:
			return req, fmt.Errorf("%w: more than %d bytes of commands", errRequest, maxBytes)
		case err != nil || flush:
			return req, err
		case len(req.commands) == maxCommands:
			return req, fmt.Errorf("%w: more than %d refs", errRequest, maxCommands)
		}
		if err := req.add(line, seen); err != nil {
			return req, err
		}
	}
}

// add takes in one line; the first of a command, or of a certificate, has the client's
// capabilities behind a NUL. Before the commands are the commits at which the history of
// the client ends, if it has no more: whether a ref could not do without that is found out when
// its history is walked.
func (r *request) add(line []byte, seen map[string]*command) error {
	text, capabilities, has := bytes.Cut(line, []byte{0})
	if has && len(r.commands) > 0 {
		return fmt.Errorf("%w: NUL in a command", errRequest)
	}
	var refused error
	for c := range strings.FieldsSeq(string(capabilities)) {
		switch {
		case c == "report-status", c == "report-status-v2":
			r.report = true
		case c == "side-band-64k":
			r.sideband = true
		case c == "atomic":
			r.atomic = true
		case c == "push-options", strings.HasPrefix(c, "push-cert="):
			refused = fmt.Errorf("%w: push options and certificates are not taken", errRequest)
		}
	}
	words := strings.SplitN(strings.TrimSuffix(string(text), "\n"), " ", 3)
	switch {
	case words[0] == "shallow" && len(words) == 2 && len(r.commands) == 0 && !has:
		id, err := parseID(words[1])
		if err == nil && id.IsZero() {
			err = fmt.Errorf("%w: no commit", errRequest)
		}
		r.shallow = true
		return err
	case words[0] == "push-cert":
		return fmt.Errorf("%w: certificates are not taken", errRequest)
	case len(words) != 3:
		return fmt.Errorf("%w: not a command", errRequest)
	}
	c := &command{name: words[2]}
	var err error
	if c.old, err = parseID(words[0]); err != nil {
		return err
	}
	if c.new, err = parseID(words[1]); err != nil {
		return err
	}
	if c.ref, err = parseRef(c.name); err != nil {
		c.reason = err.Error()
	} else if first := seen[c.name]; first != nil {
		first.reason, c.reason = refusedTwice, refusedTwice
	}
	seen[c.name] = c
	r.commands = append(r.commands, c)
	return refused
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
			return nip34.RefName{}, errors.New("refs/nostr/ wants the id of an event")
		}
		return nip34.EventRef(id), nil
	}
	return nip34.ParseRefName(s)
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
func writeRefs(w io.Writer, prefix, protocol string, refs map[string]nip34.ObjectID, format nip34.ObjectFormat) error {
	out := bufio.NewWriter(w)
	_, _ = out.WriteString(prefix) // the error stays
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

// maxNotes is the maximum number of reasons that a client is told in band 2.
const maxNotes = 10

// writeReport tells the client of a push what became of each ref, as git receive-pack does: problem
// is why the whole push was not done, if it was not. A client that reads band 2 gets notes, and
// each reason with the first of its refs.
func writeReport(w io.Writer, req *request, problem string, notes ...string) error {
	var report bytes.Buffer
	writeLine(&report, "unpack "+cmp.Or(problem, "ok")+"\n")
	refs, order := make(map[string]int), []*command(nil)
	for _, c := range req.commands {
		if c.reason == "" {
			writeLine(&report, "ok "+c.name+"\n")
			continue
		}
		writeLine(&report, "ng "+c.name+" "+c.reason+"\n")
		if refs[c.reason]++; refs[c.reason] == 1 {
			order = append(order, c)
		}
	}
	report.WriteString(flushPacket)
	if len(req.commands) == 0 {
		notes = append(notes, problem)
	}
	for _, c := range order[:min(len(order), maxNotes)] {
		note := graspsync.Printable(c.name)
		if more := refs[c.reason] - 1; more > 0 {
			note += fmt.Sprintf(" and %d more", more)
		}
		notes = append(notes, note+": "+c.reason)
	}
	out := bufio.NewWriter(w)
	if !req.sideband {
		if req.report {
			_, _ = out.Write(report.Bytes()) // the error stays
		}
		return out.Flush()
	}
	for _, note := range notes {
		writeLine(out, "\x02"+note+"\n")
	}
	for req.report && report.Len() > 0 {
		writeLine(out, "\x01"+string(report.Next(maxLine-pktHead-1)))
	}
	_, err := out.WriteString(flushPacket)
	return errors.Join(err, out.Flush())
}

// writeLine writes a packet line. The error stays in the writer.
func writeLine(w io.Writer, text string) {
	_, _ = io.WriteString(w, pktLine(text))
}

func pktLine(text string) string { return fmt.Sprintf("%04x%s", len(text)+pktHead, text) }
