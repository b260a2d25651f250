package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// The file of an earlier version is a log. Its header consists of magic, number, version and
// checksum. Each record has a header with number, version, kind, the lengths of key and value,
// their checksum, and the checksum of the header.
const (
	logName        = "state.log"
	logMagic       = "graspst1"
	logHead        = 8 + 8 + 8 + 4
	logRecordHead  = 8 + 8 + 1 + 2 + 4 + 4 + 4
	logKind        = 16 // offset in a record header
	logKindPut     = 1
	logKeyLength   = 17
	logValueLength = 19
	logBodySum     = 23
	logRecordSum   = 27
)

// convert creates the bucket of a new file, with the records of an earlier version's log if one
// exists.
func (d *DB) convert(dir string) error {
	path := filepath.Join(dir, logName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d.begin(nil)
	}
	if err != nil {
		return err
	}
	values, left := readLog(data)
	if err := d.begin(values); err != nil {
		return err
	}
	if left > 0 { // an incomplete append, or damage
		d.stats.SetAside++
		d.cfg.Logger.Error("damaged end of the earlier log not converted", "bytes", left, "kept_as", path+".old")
	}
	return os.Rename(path, path+".old")
}

func (d *DB) begin(values map[string][]byte) error {
	err := d.bolt.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucket) != nil {
			return nil
		}
		b, err := tx.CreateBucket(bucket)
		if err != nil {
			return err
		}
		for key, value := range values {
			if err := b.Put([]byte(key), encode(Record{key, value})); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("making the file: %w", err)
	}
	return d.bolt.View(d.count)
}

// readLog returns the values of a log up to the first damaged record, and the number of bytes after
// that. If the end is damaged, the values are those of an earlier time.
func readLog(data []byte) (values map[string][]byte, left int) {
	if len(data) < logHead || string(data[:len(logMagic)]) != logMagic {
		return nil, len(data)
	}
	number, data := string(data[8:16]), data[logHead:]
	values = make(map[string][]byte)
	for len(data) >= logRecordHead {
		head, body := data[:logRecordHead], data[logRecordHead:]
		key := int(binary.BigEndian.Uint16(head[logKeyLength:]))
		size := key + int(binary.BigEndian.Uint32(head[logValueLength:]))
		if string(head[:8]) != number || size > len(body) || CheckKey(string(body[:min(key, len(body))])) != nil ||
			crc32.Checksum(head[:logRecordSum], castagnoli) != binary.BigEndian.Uint32(head[logRecordSum:]) ||
			crc32.Checksum(body[:size], castagnoli) != binary.BigEndian.Uint32(head[logBodySum:]) {
			break
		}
		if name := string(body[:key]); head[logKind] == logKindPut {
			values[name] = body[key:size]
		} else {
			delete(values, name)
		}
		data = body[size:]
	}
	return values, len(data)
}
