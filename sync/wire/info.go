package wire

import (
	"bytes"
	"encoding/json"
	"math"
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
// Numbers may be strings, and a wrong field is ignored.
func ParseInfo(data []byte) Info {
	var doc struct {
		Name, Software string
		NIPs           []scalar `json:"supported_nips"`
		Limitation     struct {
			MaxMessageLength scalar `json:"max_message_length"`
			MaxSubscriptions scalar `json:"max_subscriptions"`
			MaxFilters       scalar `json:"max_filters"`
			MaxLimit         scalar `json:"max_limit"`
			MaxSubIDLength   scalar `json:"max_subid_length"`
			AuthRequired     scalar `json:"auth_required"`
		}
	}
	// After an error of type the other fields are read.
	_ = json.Unmarshal(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), &doc)
	l := doc.Limitation
	info := Info{
		Name:             graspsync.Clip(doc.Name, graspsync.MaxText),
		Software:         graspsync.Clip(doc.Software, graspsync.MaxText),
		MaxMessageLength: l.MaxMessageLength.atLeast(minMessageLength),
		MaxSubscriptions: l.MaxSubscriptions.atLeast(1),
		MaxFilters:       l.MaxFilters.atLeast(1),
		MaxLimit:         l.MaxLimit.atLeast(1),
		MaxSubIDLength:   l.MaxSubIDLength.atLeast(1),
		AuthRequired:     l.AuthRequired == "true" || l.AuthRequired == "1",
	}
	for _, nip := range doc.NIPs[:min(len(doc.NIPs), maxNIPs)] {
		if n := nip.atLeast(1); n > 0 {
			info.NIPs = append(info.NIPs, n)
		}
	}
	return info
}

type scalar string

// UnmarshalJSON implements [json.Unmarshaler]. It accepts any value.
func (s *scalar) UnmarshalJSON(b []byte) error {
	*s = scalar(strings.Trim(string(b), `" `))
	return nil
}

// atLeast returns a whole number of at least least, in any spelling, and 0 for other values.
func (s scalar) atLeast(least float64) int {
	f, err := strconv.ParseFloat(string(s), 64)
	if err != nil || f != math.Trunc(f) || f < least || f > math.MaxInt32 {
		return 0
	}
	return int(f)
}
