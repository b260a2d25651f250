package upload

import (
	"fmt"
	"strings"

	"github.com/graspsync/graspsync/nip34"
)

// request is the body of the POST.
func (s *Server) request(wants, haves []nip34.ObjectID) []byte {
	if s.Version == 2 {
		return s.requestV2(wants, haves)
	}
	var b []byte
	caps := []string{}
	for _, name := range []string{"side-band-64k", "ofs-delta", "thin-pack", "no-progress"} {
		if _, ok := s.caps[name]; ok {
			caps = append(caps, name)
		}
	}
	if _, ok := s.caps["object-format"]; ok {
		caps = append(caps, "object-format="+s.Format.String())
	}
	for i, id := range wants {
		line := "want " + id.String()
		if i == 0 {
			line += " " + strings.Join(caps, " ")
		}
		b = appendLine(b, line+"\n")
	}
	b = append(b, flushPacket...)
	for _, id := range haves {
		b = appendLine(b, "have "+id.String()+"\n")
	}
	return appendLine(b, "done\n")
}

func (s *Server) requestV2(wants, haves []nip34.ObjectID) []byte {
	b := appendLine(nil, "command=fetch\n")
	if _, ok := s.caps["object-format"]; ok {
		b = appendLine(b, "object-format="+s.Format.String()+"\n")
	}
	b = append(b, delimPacket...)
	for _, arg := range []string{"thin-pack", "no-progress", "ofs-delta"} {
		b = appendLine(b, arg+"\n")
	}
	for _, id := range wants {
		b = appendLine(b, "want "+id.String()+"\n")
	}
	for _, id := range haves {
		b = appendLine(b, "have "+id.String()+"\n")
	}
	b = appendLine(b, "done\n")
	return append(b, flushPacket...)
}

// requestTips is the body of a POST that asks for what refs point to, and what tags
// there point to.
func (s *Server) requestTips() []byte {
	b := appendLine(nil, "command=ls-refs\n")
	if _, ok := s.caps["object-format"]; ok {
		b = appendLine(b, "object-format="+s.Format.String()+"\n")
	}
	b = append(b, delimPacket...)
	for _, arg := range []string{"peel", "ref-prefix refs/heads/", "ref-prefix refs/tags/", "ref-prefix refs/nostr/"} {
		b = appendLine(b, arg+"\n")
	}
	return append(b, flushPacket...)
}

// readTips reads the answer to it.
func (s *Server) readTips(r *reader, maxRefs int) error {
	tips := make(map[nip34.ObjectID]struct{})
	for n := 0; ; n++ {
		k, line, err := r.line()
		switch {
		case err != nil:
			return advertError(err)
		case k == flush:
			s.Tips = tips
			return nil
		case k != data:
			return fmt.Errorf("%w: unexpected packet in a list of refs", ErrProtocol)
		case n >= maxRefs:
			return &LimitError{Limit: "refs", Most: int64(maxRefs)}
		}
		if err := refusedBy(line); err != nil {
			return err
		}
		// "<id> <name> peeled:<id>"; what a server adds is none of our business.
		words := strings.Fields(line)
		for i, word := range words {
			peeled, ok := strings.CutPrefix(word, "peeled:")
			if i > 0 && !ok {
				continue
			}
			id, err := nip34.ParseObjectID(peeled)
			if err != nil {
				if i == 0 {
					return fmt.Errorf("%w: malformed ref", ErrProtocol)
				}
				continue
			}
			tips[id] = struct{}{}
		}
		if len(words) == 0 {
			return fmt.Errorf("%w: malformed ref", ErrProtocol)
		}
	}
}
