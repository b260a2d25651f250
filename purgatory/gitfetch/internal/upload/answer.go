package upload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/pktline"
)

func (s *Server) readAnswer(r *reader, p *packReader) error {
	if s.Version == 2 {
		return readV2(r, p)
	}
	return s.readV0(r, p)
}

func readV2(r *reader, p *packReader) error {
	for {
		k, line, err := r.line()
		if err != nil {
			return cutOff(err)
		}
		// None of the sections "acknowledgments", "shallow-info", "wanted-refs" and "packfile-uris"
		// was requested.
		if err := p.overhead(len(line)); err != nil {
			return err
		}
		if k != pktline.Data {
			continue
		}
		if err := refusedBy(line); err != nil {
			return err
		}
		if line == "packfile" {
			return sideband(r, p)
		}
	}
}

func (s *Server) readV0(r *reader, p *packReader) error {
	for {
		// Without a sideband the raw pack follows.
		if !s.offers("side-band-64k") && !s.offers("side-band") {
			if head, err := r.r.Peek(4); err == nil && string(head) == "PACK" {
				_, err := io.Copy(p, r.r)
				return err
			}
		} else if head, err := r.r.Peek(5); err == nil && head[4] >= 1 && head[4] <= 3 {
			return sideband(r, p)
		}
		k, line, err := r.line()
		if err != nil {
			return cutOff(err)
		}
		if err := refusedBy(line); k == pktline.Data && err != nil {
			return err
		}
		if err := p.overhead(len(line)); err != nil {
			return err
		}
	}
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: answer without a pack", ErrProtocol)
	}
	return err
}

func sideband(r *reader, p *packReader) error {
	for {
		k, payload, err := r.next()
		if err := p.overhead(0); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: cut off pack", ErrProtocol)
		case err != nil:
			return err
		case k == pktline.Flush:
			return nil
		case k != pktline.Data || len(payload) == 0:
			return fmt.Errorf("%w: unexpected packet in a pack", ErrProtocol)
		}
		switch payload[0] {
		case 1:
			if _, err := p.Write(payload[1:]); err != nil {
				return err
			}
		case 2: // progress messages
			if err := p.overhead(len(payload)); err != nil {
				return err
			}
		case 3:
			return remoteError(string(payload[1:min(len(payload), graspsync.MaxText)]))
		default:
			return fmt.Errorf("%w: unknown side band", ErrProtocol)
		}
	}
}

// The maximum number of bytes beside the pack is maxOverhead and 1/overheadShare of the pack.
const (
	maxOverhead   = 1 << 20
	overheadShare = 16
)

// overhead counts a packet with n bytes beside the pack. Otherwise acknowledgments, messages and
// empty packets would never reach a limit.
func (p *packReader) overhead(n int) error {
	if p.other += int64(n) + 4; p.other > maxOverhead+p.bytes/overheadShare {
		return &LimitError{Limit: "bytes beside the pack", Most: maxOverhead}
	}
	return nil
}

// packReader counts the bytes of a pack and checks its header.
type packReader struct {
	w      io.Writer
	meter  *Meter
	limits Limits
	head   []byte
	bytes  int64
	other  int64 // bytes beside the pack
}

const packHeader = 12

func (p *packReader) Write(b []byte) (int, error) {
	p.bytes += int64(len(b))
	p.meter.add(len(b))
	if p.bytes > p.limits.PackBytes {
		return 0, &LimitError{Limit: "pack bytes", Most: p.limits.PackBytes}
	}
	n := len(b)
	if missing := packHeader - len(p.head); missing > 0 {
		take := min(missing, len(b))
		p.head = append(p.head, b[:take]...)
		b = b[take:]
		if len(p.head) < packHeader {
			return n, nil
		}
		if err := p.checkHeader(); err != nil {
			return 0, err
		}
		b = slices.Concat(p.head, b)
	}
	p.meter.Sending.Store(false) // a slow disk of ours is not the server's fault
	_, err := p.w.Write(b)
	p.meter.Sending.Store(true)
	if err != nil {
		return 0, fmt.Errorf("writing a pack: %w", err)
	}
	return n, nil
}

func (p *packReader) checkHeader() error {
	version, objects := binary.BigEndian.Uint32(p.head[4:]), binary.BigEndian.Uint32(p.head[8:])
	if string(p.head[:4]) != "PACK" || (version != 2 && version != 3) {
		return fmt.Errorf("%w: no pack where one should be", ErrProtocol)
	}
	if objects > p.limits.PackObjects {
		return &LimitError{Limit: "pack objects", Most: int64(p.limits.PackObjects)}
	}
	return nil
}

func (p *packReader) end() error {
	if len(p.head) < packHeader {
		return fmt.Errorf("%w: empty pack", ErrProtocol)
	}
	return nil
}

// bounded returns an error at its limit, unlike [io.LimitedReader].
type bounded struct {
	r     io.Reader
	left  int64
	most  int64
	limit string
	meter *Meter
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, &LimitError{Limit: b.limit, Most: b.most}
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	b.meter.add(n)
	return n, err
}
