package memory

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// Kept contains the items that a plan has confirmed on a relay, and the time up to which they are
// complete.
type Kept = plan.Kept

const (
	maxHost    = 255         // maximum length of a host name in bytes
	maxRecord  = 8 << 10     // maximum size of a health record in bytes
	clockSlack = time.Minute // tolerated step back of the clock

	codecVersion = 1
	keptHead     = 1 + 8 + 8
)

var (
	errVersion = errors.New("unknown version")
	errLength  = errors.New("wrong length")
	errOrder   = errors.New("items are not in order")
)

// Times are stored in milliseconds, rounded down. 0 is the zero time.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.BigEndian.AppendUint64(b, 0)
	}
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMilli()))
}

// latest is the latest valid time.
var latest = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()

func parseTime(b []byte) time.Time {
	ms := int64(binary.BigEndian.Uint64(b))
	if ms <= 0 || ms > latest {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func encodeKept(k Kept) []byte {
	b := make([]byte, 0, keptHead+8*len(k.Items))
	b = append(b, codecVersion)
	b = appendTime(b, k.Mark)
	b = appendTime(b, k.PassAt)
	for _, it := range k.Items {
		b = binary.BigEndian.AppendUint64(b, it)
	}
	return b
}

func decodeKept(b []byte) (k Kept, err error) {
	switch {
	case len(b) == 0 || b[0] != codecVersion:
		return k, errVersion
	case len(b) < keptHead || (len(b)-keptHead)%8 != 0:
		return k, errLength
	}
	k.Mark, k.PassAt = parseTime(b[1:]), parseTime(b[9:])
	k.Items = make([]uint64, 0, (len(b)-keptHead)/8)
	for b = b[keptHead:]; len(b) > 0; b = b[8:] {
		it := binary.BigEndian.Uint64(b)
		if n := len(k.Items); n > 0 && it <= k.Items[n-1] {
			return Kept{}, errOrder
		}
		k.Items = append(k.Items, it)
	}
	return k, nil
}

// plausible reports whether a Kept may be used now, and moves future times to now. A mark in the
// far future came from a wrong clock and proves nothing.
func plausible(k *Kept, now time.Time) bool {
	if k.Mark.IsZero() || k.Mark.After(now.Add(clockSlack)) || len(k.Items) == 0 {
		return false
	}
	for _, t := range []*time.Time{&k.Mark, &k.PassAt} {
		if t.After(now) {
			*t = now
		}
	}
	return true
}

// identity returns a hash of an encoded Kept.
func identity(kept []byte) uint64 {
	sum := sha256.Sum256(kept)
	return binary.BigEndian.Uint64(sum[:])
}

// mark is a newer mark for the Kept with identity of. After a crash a mark must never apply to the
// items of another time, so it is ignored if the Kept differs.
type mark struct {
	relay graspsync.RelayURL
	at    time.Time
	of    uint64 // identity
}

func encodeMarks(marks []mark) []byte {
	b := []byte{codecVersion}
	for _, m := range marks {
		u := m.relay.String()
		b = binary.BigEndian.AppendUint16(b, uint16(len(u)))
		b = append(b, u...)
		b = appendTime(b, m.at)
		b = binary.BigEndian.AppendUint64(b, m.of)
	}
	return b
}

func decodeMarks(b []byte) (map[graspsync.RelayURL]mark, error) {
	if len(b) == 0 || b[0] != codecVersion {
		return nil, errVersion
	}
	out := make(map[graspsync.RelayURL]mark)
	for b = b[1:]; len(b) > 0; {
		if len(b) < 2 {
			return nil, errLength
		}
		n := int(binary.BigEndian.Uint16(b))
		if len(b) < 2+n+16 {
			return nil, errLength
		}
		u, err := parseURL(string(b[2 : 2+n]))
		if err != nil {
			return nil, err
		}
		b = b[2+n:]
		out[u] = mark{relay: u, at: parseTime(b), of: binary.BigEndian.Uint64(b[8:])}
		b = b[16:]
	}
	return out, nil
}

var errSpelling = errors.New("relay URL is not normalized")

// parseURL accepts only the normalized spelling of a relay URL.
func parseURL(s string) (graspsync.RelayURL, error) {
	u, err := graspsync.ParseRelayURL(s)
	if err == nil && u.String() != s {
		err = errSpelling
	}
	if err != nil {
		return graspsync.RelayURL{}, fmt.Errorf("relay URL: %w", err)
	}
	return u, nil
}

func decodeHealth(b []byte) (r health.Record, err error) {
	if len(b) > maxRecord {
		return r, errLength
	}
	err = json.Unmarshal(b, &r)
	return r, err
}

func decodeLearned(b []byte, now time.Time) (l relaylimits.Learned, err error) {
	if err = json.Unmarshal(b, &l); err == nil && len(l.SetAside) > relaylimits.MaxAside {
		err = errLength
	}
	l.Clamp(now)
	return l, err
}
