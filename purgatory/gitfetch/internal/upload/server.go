package upload

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/pktline"
)

// Server contains the capabilities and refs of a server.
type Server struct {
	// Version of the protocol, 2 or 0.
	Version int
	Format  nip34.ObjectFormat
	// Tips are the advertised ids, nil for version 2 until ListTips.
	Tips map[nip34.ObjectID]struct{}
	// Requests is the number of requests of the discovery, including redirects.
	Requests int
	// capabilities with values
	caps map[string]string
	base string // URL of the POST
}

const maxCapabilities = 100

func parseAdvertisement(body io.Reader, maxRefs int) (*Server, error) {
	r := newReader(body)
	k, line, err := r.line()
	if err == nil && k == pktline.Data && strings.HasPrefix(line, "# service=git-upload-pack") {
		if k, _, err = r.next(); err == nil && k == pktline.Flush {
			if k, line, err = r.line(); err == nil && k == pktline.Flush {
				return nil, ErrEmpty
			}
		} else if err == nil {
			return nil, fmt.Errorf("%w: no flush after the service", ErrProtocol)
		}
	}
	if err != nil {
		return nil, advertError(err)
	}
	if k != pktline.Data {
		return nil, fmt.Errorf("%w: empty advertisement", ErrProtocol)
	}
	if line == "version 2" {
		return parseV2(r)
	}
	return parseV0(r, line, maxRefs)
}

func advertError(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: cut off advertisement", ErrProtocol)
	}
	return fmt.Errorf("reading advertisement: %w", err)
}

func parseV2(r *reader) (*Server, error) {
	s := &Server{Version: 2, caps: make(map[string]string)}
	for {
		k, line, err := r.line()
		switch {
		case err != nil:
			return nil, advertError(err)
		case k == pktline.Flush:
			return s, s.readFormat()
		case k != pktline.Data:
			return nil, fmt.Errorf("%w: unexpected packet in an advertisement", ErrProtocol)
		}
		if err := refusedBy(line); err != nil {
			return nil, err
		}
		name, value, _ := strings.Cut(line, "=")
		s.learn(name, value)
	}
}

func (s *Server) learn(name, value string) {
	if len(s.caps) < maxCapabilities {
		s.caps[name] = value
	}
}

func (s *Server) readFormat() error {
	if s.Version == 2 && !s.offers("fetch") {
		return fmt.Errorf("%w: server can't fetch", ErrProtocol)
	}
	formats := map[string]nip34.ObjectFormat{"": nip34.SHA1, "sha1": nip34.SHA1, "sha256": nip34.SHA256}
	var known bool
	if s.Format, known = formats[s.caps["object-format"]]; !known {
		return fmt.Errorf("%w: unknown object format", ErrProtocol)
	}
	return nil
}

// parseV0 parses a ref list. The first line contains the capabilities.
func parseV0(r *reader, first string, maxRefs int) (*Server, error) {
	s := &Server{caps: make(map[string]string), Tips: make(map[nip34.ObjectID]struct{})}
	if strings.HasPrefix(first, "version 1") {
		k, line, err := r.line()
		if err != nil {
			return nil, advertError(err)
		}
		if k != pktline.Data {
			return nil, ErrEmpty
		}
		first = line
	}
	if err := refusedBy(first); err != nil {
		return nil, err
	}
	ref, caps, _ := strings.Cut(first, "\x00")
	for c := range strings.FieldsSeq(caps) {
		name, value, _ := strings.Cut(c, "=")
		s.learn(name, value)
	}
	if err := s.addTip(ref); err != nil {
		return nil, err
	}
	err := r.refs(1, maxRefs, func(line string) error {
		if strings.HasPrefix(line, "shallow ") {
			return nil
		}
		return s.addTip(line)
	})
	if err != nil {
		return nil, err
	}
	return s, s.readFormat()
}

// refs calls each for the lines of a list of at most most refs, of which n were read.
func (r *reader) refs(n, most int, each func(line string) error) error {
	for ; ; n++ {
		k, line, err := r.line()
		switch {
		case err != nil:
			return advertError(err)
		case k == pktline.Flush:
			return nil
		case k != pktline.Data:
			return fmt.Errorf("%w: unexpected packet in a list of refs", ErrProtocol)
		case n >= most:
			return &LimitError{Limit: "refs", Most: int64(most)}
		}
		if err := refusedBy(line); err != nil {
			return err
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

func (s *Server) addTip(line string) error {
	text, name, ok := strings.Cut(line, " ")
	id, err := nip34.ParseObjectID(text)
	if !ok || err != nil {
		return fmt.Errorf("%w: malformed ref", ErrProtocol)
	}
	if name != "capabilities^{}" {
		s.Tips[id] = struct{}{}
	}
	return nil
}

// Serves reports whether the server may serve an object. Some version 0 servers serve only tips.
func (s *Server) Serves(id nip34.ObjectID) bool {
	if s.Format != id.Format() {
		return false
	}
	if s.Version == 2 {
		return true
	}
	_, tip := s.Tips[id]
	return tip || s.offers("allow-tip-sha1-in-want") || s.offers("allow-reachable-sha1-in-want")
}

func (s *Server) setBase(final *url.URL) error {
	base, ok := strings.CutSuffix(final.Path, "/info/refs")
	if !ok {
		return fmt.Errorf("discovering: %w: redirected to something else", ErrProtocol)
	}
	post := *final
	post.Path, post.RawPath, post.RawQuery = base+"/git-upload-pack", "", ""
	if final.RawPath != "" {
		post.RawPath = strings.TrimSuffix(final.RawPath, "/info/refs") + "/git-upload-pack"
	}
	s.base = post.String()
	return nil
}

func hops(resp *http.Response) (n int) {
	for ; resp != nil; resp = resp.Request.Response {
		n++
	}
	return n
}

func (s *Server) offers(name string) bool {
	_, ok := s.caps[name]
	return ok
}

func (s *Server) request(wants, haves []nip34.ObjectID) []byte {
	if s.Version == 2 {
		return s.requestV2(wants, haves)
	}
	var b []byte
	caps := []string{}
	// Like git, choose the newer of two variants. Some servers refuse clients without capabilities.
	for _, names := range [][]string{
		{"multi_ack_detailed", "multi_ack"}, {"side-band-64k", "side-band"}, {"ofs-delta"}, {"thin-pack"}, {"no-progress"},
	} {
		if i := slices.IndexFunc(names, s.offers); i >= 0 {
			caps = append(caps, names[i])
		}
	}
	if s.offers("object-format") {
		caps = append(caps, "object-format="+s.Format.String())
	}
	for i, id := range wants {
		line := "want " + id.String()
		if i == 0 {
			line += " " + strings.Join(caps, " ")
		}
		b = append(b, pktline.Line(line+"\n")...)
	}
	b = append(b, pktline.FlushPacket...)
	for _, id := range haves {
		b = append(b, pktline.Line("have "+id.String()+"\n")...)
	}
	return append(b, pktline.Line("done\n")...)
}

func (s *Server) requestV2(wants, haves []nip34.ObjectID) []byte {
	args := []string{"thin-pack", "no-progress", "ofs-delta"}
	for _, id := range wants {
		args = append(args, "want "+id.String())
	}
	for _, id := range haves {
		args = append(args, "have "+id.String())
	}
	return s.command("fetch", append(args, "done")...)
}

func (s *Server) requestTips() []byte {
	return s.command("ls-refs", "peel", "ref-prefix refs/heads/", "ref-prefix refs/tags/", "ref-prefix refs/nostr/")
}

func (s *Server) command(name string, args ...string) []byte {
	b := []byte(pktline.Line("command=" + name + "\n"))
	if s.offers("object-format") {
		b = append(b, pktline.Line("object-format="+s.Format.String()+"\n")...)
	}
	b = append(b, pktline.DelimPacket...)
	for _, arg := range args {
		b = append(b, pktline.Line(arg+"\n")...)
	}
	return append(b, pktline.FlushPacket...)
}

// readTips reads the answer to requestTips: "<id> <name> peeled:<id>". Other attributes are ignored.
func (s *Server) readTips(r *reader, maxRefs int) error {
	tips := make(map[nip34.ObjectID]struct{})
	err := r.refs(0, maxRefs, func(line string) error {
		text, rest, _ := strings.Cut(line, " ")
		id, err := nip34.ParseObjectID(text)
		if err != nil {
			return fmt.Errorf("%w: malformed ref", ErrProtocol)
		}
		tips[id] = struct{}{}
		for word := range strings.FieldsSeq(rest) {
			if peeled, ok := strings.CutPrefix(word, "peeled:"); ok {
				if id, err := nip34.ParseObjectID(peeled); err == nil {
					tips[id] = struct{}{}
				}
			}
		}
		return nil
	})
	if err == nil {
		s.Tips = tips
	}
	return err
}
