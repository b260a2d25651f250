package filestate

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/graspsync/graspsync/state"
)

// A log begins with a head: magic, a number that is random for each file, the
// newest version given out before it was begun, and a CRC32C of these.
//
// Records follow, in ascending order of version. Each has a head of its own: the
// file's number, version, kind, lengths, the sum of key and value, and the sum of
// all that. The head's sum says whether the length can be believed, and so where the
// next record is although this one is damaged. The number makes sure that a value
// that looks like a record is not taken for one when a damaged stretch is searched.
const (
	magic        = "graspst1"
	fileHeadSize = 8 + 8 + 8 + 4
	headSize     = 8 + 8 + 1 + 2 + 4 + 4 + 4
)

// maxVersion can't be reached by counting.
const maxVersion = 1 << 62

type kind uint8

const (
	put kind = iota + 1
	remove
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(parts ...[]byte) uint32 {
	var s uint32
	for _, p := range parts {
		s = crc32.Update(s, castagnoli, p)
	}
	return s
}

// record is one change.
type record struct {
	version state.Version
	kind    kind
	key     string
	value   []byte
}

func (r record) size() int64 { return headSize + int64(len(r.key)+len(r.value)) }

func appendFileHead(b []byte, number uint64, last state.Version) []byte {
	from := len(b)
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint64(b, number)
	b = binary.BigEndian.AppendUint64(b, uint64(last))
	return binary.BigEndian.AppendUint32(b, sum(b[from:]))
}

func appendRecord(b []byte, number uint64, r record) []byte {
	from := len(b)
	b = binary.BigEndian.AppendUint64(b, number)
	b = binary.BigEndian.AppendUint64(b, uint64(r.version))
	b = append(b, byte(r.kind))
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.key))) // at most state.MaxKey
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.value)))
	b = binary.BigEndian.AppendUint32(b, sum([]byte(r.key), r.value))
	b = binary.BigEndian.AppendUint32(b, sum(b[from:]))
	b = append(b, r.key...)
	return append(b, r.value...)
}

// head is what precedes key and value of a record.
type head struct {
	number   uint64
	version  state.Version
	kind     kind
	key      int
	value    int64
	contents uint32
}

func (h head) body() int64 { return int64(h.key) + h.value }

// parseHead reads the headSize bytes of b; false if no record can begin like that.
func parseHead(b []byte) (head, bool) {
	if sum(b[:headSize-4]) != binary.BigEndian.Uint32(b[headSize-4:]) {
		return head{}, false
	}
	h := head{
		number:   binary.BigEndian.Uint64(b),
		version:  state.Version(binary.BigEndian.Uint64(b[8:])),
		kind:     kind(b[16]),
		key:      int(binary.BigEndian.Uint16(b[17:])),
		value:    int64(binary.BigEndian.Uint32(b[19:])),
		contents: binary.BigEndian.Uint32(b[23:]),
	}
	ok := h.version != state.Absent && h.version < maxVersion && h.key > 0 && h.key <= state.MaxKey &&
		(h.kind == put || h.kind == remove && h.value == 0)
	return h, ok
}

// parseFileHead reads the fileHeadSize bytes of b.
func parseFileHead(b []byte) (number uint64, last state.Version, ok bool) {
	ok = string(b[:8]) == magic && sum(b[:fileHeadSize-4]) == binary.BigEndian.Uint32(b[fileHeadSize-4:])
	last = state.Version(binary.BigEndian.Uint64(b[16:]))
	return binary.BigEndian.Uint64(b[8:]), last, ok && last < maxVersion
}
