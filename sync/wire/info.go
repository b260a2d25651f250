package wire

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync"
)

// MaxInfo is the maximum size of a NIP-11 document that is read, in bytes.
const MaxInfo = 64 << 10

const (
	// maxNIPs is the maximum number of NIPs that are read from a document.
	maxNIPs = 256
	// minMessageLength is the minimum max_message_length that counts. With a smaller one no event
	// could be requested.
	minMessageLength = 512
)

// ParseInfo reads a NIP-11 document. It never fails, because such documents are written by hand.
// Fields are read one by one, numbers also from strings, and a field with a wrong type or range is
// ignored. If the document is truncated or invalid JSON, the fields before that position count.
// Only the first [MaxInfo] bytes are read.
func ParseInfo(data []byte) Info {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	data = data[:min(len(data), MaxInfo)]
	p := infoParser{scanner: scanner{data: data, depth: maxDepth}}
	p.space()
	// The error ends the reading. Fields before it are kept.
	_ = p.object(0, p.top)
	return p.info
}

type infoParser struct {
	scanner
	info Info
}

func (p *infoParser) top(key []byte) error {
	switch string(key) {
	case "name":
		return p.string(&p.info.Name)
	case "software":
		return p.string(&p.info.Software)
	case "supported_nips":
		if p.peek() == '[' {
			p.info.NIPs = nil
			return p.array(1, p.nip)
		}
	case "limitation":
		if p.peek() == '{' {
			return p.object(1, p.limitation)
		}
	}
	return p.skip(1)
}

func (p *infoParser) limitation(key []byte) error {
	switch string(key) {
	case "max_message_length":
		return p.number(&p.info.MaxMessageLength, minMessageLength)
	case "max_subscriptions":
		return p.number(&p.info.MaxSubscriptions, 1)
	case "max_filters":
		return p.number(&p.info.MaxFilters, 1)
	case "max_limit":
		return p.number(&p.info.MaxLimit, 1)
	case "max_subid_length":
		return p.number(&p.info.MaxSubIDLength, 1)
	case "auth_required":
		s, err := p.scalar()
		if err == nil {
			p.info.AuthRequired = s == "true" || s == "1"
		}
		return err
	}
	return p.skip(2)
}

// string reads a value into dst if it is a string.
func (p *infoParser) string(dst *string) error {
	if p.peek() != '"' {
		return p.skip(1)
	}
	s, err := p.text(graspsync.MaxText)
	if err == nil {
		*dst = s
	}
	return err
}

// number reads a value into dst if it is a number of at least least.
func (p *infoParser) number(dst *int, least int) error {
	s, err := p.scalar()
	if err != nil {
		return err
	}
	*dst = 0
	if n, ok := whole(s); ok && n >= least {
		*dst = n
	}
	return nil
}

func (p *infoParser) nip() error {
	s, err := p.scalar()
	if err != nil {
		return err
	}
	n, ok := whole(s)
	if ok && n > 0 && len(p.info.NIPs) < maxNIPs && !slices.Contains(p.info.NIPs, n) {
		p.info.NIPs = append(p.info.NIPs, n)
	}
	return nil
}

// scalar reads a value and returns its text. That is a string without quotes, a number or literal
// as written, and "" for other values.
func (p *infoParser) scalar() (string, error) {
	const longest = 32
	switch p.peek() {
	case '"':
		return p.text(longest)
	case '[', '{':
		return "", p.skip(2)
	}
	start := p.pos
	if err := p.skip(2); err != nil {
		return "", err
	}
	return string(p.data[start:min(p.pos, start+longest)]), nil
}

// whole reads a whole number that is not negative, in any spelling.
func whole(s string) (int, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || f != math.Trunc(f) || f < 0 || f > math.MaxInt32 {
		return 0, false
	}
	return int(f), true
}
