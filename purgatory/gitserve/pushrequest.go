package gitserve

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/pktline"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// command is a ref change in a push. The zero id is git's null id.
type command struct {
	name     string // as the client sent it
	ref      nip34.RefName
	old, new nip34.ObjectID
	staged   bool   // the event is not stored
	reason   string // reason of the refusal; empty: not refused
}

type request struct {
	commands []*command
	report   bool // the client wants a report of each ref
	sideband bool // the report is sent in sideband packets
	atomic   bool // all commands or none
	shallow  bool // the client has a shallow clone
}

func (r *request) hears() bool { return r.report || r.sideband || len(r.commands) > 0 }

// left returns the commands that are not refused, for events that are not stored or for other refs.
func (r *request) left(staged bool) (out []*command) {
	for _, c := range r.commands {
		if c.reason == "" && c.staged == staged {
			out = append(out, c)
		}
	}
	return out
}

func (r *request) refuse(reason string) {
	for _, c := range r.commands {
		c.reason = cmp.Or(c.reason, reason)
	}
}

// over reports whether all commands are refused, as after one refusal in an atomic push.
func (r *request) over() bool {
	refused := slices.ContainsFunc(r.commands, func(c *command) bool { return c.reason != "" })
	if r.atomic && refused {
		r.refuse(refusedOther)
	}
	return !slices.ContainsFunc(r.commands, func(c *command) bool { return c.reason == "" })
}

func names(commands []*command) []nip34.RefName {
	out := make([]nip34.RefName, len(commands))
	for i, c := range commands {
		out[i] = c.ref
	}
	return out
}

var errRequest = errors.New("push not understood")

// readRequest reads the commands of a push up to their flush packet, and nothing more. If r ends
// early, the error wraps [io.ErrUnexpectedEOF]. With an error it returns the commands before it,
// for the report.
func readRequest(r io.Reader, maxCommands, maxBytes int) (*request, error) {
	req := &request{}
	in := &io.LimitedReader{R: r, N: int64(maxBytes)}
	packets := pktline.Reader{R: in}
	seen := make(map[string]*command)
	for {
		kind, line, err := packets.Next()
		switch {
		case err != nil && in.N <= 0:
			return req, fmt.Errorf("%w: more than %d bytes of commands", errRequest, maxBytes)
		case errors.Is(err, io.EOF):
			return req, io.ErrUnexpectedEOF
		case errors.Is(err, pktline.ErrMalformed):
			return req, fmt.Errorf("%w: %w", errRequest, err)
		case err != nil || kind == pktline.Flush:
			return req, err
		case len(req.commands) == maxCommands:
			return req, fmt.Errorf("%w: more than %d refs", errRequest, maxCommands)
		}
		if err := req.add(line, seen); err != nil {
			return req, err
		}
	}
}

// add parses a line. The first command contains the capabilities after a NUL. Shallow boundaries of
// the client precede the commands. Missing history is detected when git checks the pack.
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
			refused = fmt.Errorf("%w: push options and certificates are not supported", errRequest)
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
	if c.ref, err = refplan.ParseRef(c.name); err != nil {
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

// writeReport writes the report of a push, like git receive-pack. problem is the reason why the
// whole push failed, or "". notes are for clients that read band 2.
func writeReport(w io.Writer, req *request, problem string, notes ...string) error {
	var report bytes.Buffer
	writeLine(&report, "unpack "+cmp.Or(problem, "ok")+"\n")
	for _, c := range req.commands {
		if c.reason == "" {
			writeLine(&report, "ok "+c.name+"\n")
		} else {
			writeLine(&report, "ng "+c.name+" "+c.reason+"\n")
		}
	}
	report.WriteString(pktline.FlushPacket)
	if len(req.commands) == 0 {
		notes = append(notes, problem)
	}
	out := bufio.NewWriter(w)
	if !req.sideband {
		if req.report {
			_, _ = out.Write(report.Bytes())
		}
		return out.Flush()
	}
	for _, note := range notes {
		writeLine(out, "\x02"+note+"\n")
	}
	for req.report && report.Len() > 0 {
		writeLine(out, "\x01"+string(report.Next(pktline.MaxSize-pktline.Head-1)))
	}
	_, err := out.WriteString(pktline.FlushPacket)
	return errors.Join(err, out.Flush())
}

// writeLine writes a packet line. The writer keeps the error.
func writeLine(w io.Writer, text string) {
	_, _ = io.WriteString(w, pktline.Line(text))
}
