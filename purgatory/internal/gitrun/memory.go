package gitrun

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/graspsync/graspsync/limit"
)

// Memory is a memory budget for all git children together, in bytes. The operating system limits
// each child to the part that it acquired. It is safe for concurrent use.
type Memory struct {
	*limit.Slots
	Total, Part int64 // Part is Total/4, the maximum of one client
	Asks        int64 // Total/8, not part of Slots, see AskMemory
}

// DefaultMemory is the default of Total.
const DefaultMemory = 2 << 30

// AskMemory is the memory of a child that only lists refs. These children do not wait for clones.
const AskMemory = 32 << 20

// NewMemory returns a budget of total bytes.
func NewMemory(total int64) *Memory {
	m := &Memory{Total: total, Part: total / 4, Asks: total / 8}
	m.Slots = limit.NewSlots(total-m.Asks, m.Part)
	return m
}

// Packs estimates the number of objects of a repository, and the memory to unpack a large one.
func Packs(dir string) (objects, unpacked int64) {
	files, _ := os.ReadDir(filepath.Join(dir, "objects", "pack")) // git cannot read an unreadable folder either
	for _, f := range files {
		info, err := f.Info()
		switch {
		case err != nil:
		case strings.HasSuffix(f.Name(), ".idx"):
			objects += info.Size() / 28 // id, checksum and offset
		case strings.HasSuffix(f.Name(), ".pack"):
			unpacked += 16 * info.Size() // 4 (text compresses to 1/4) * 4 (object, base, a copy of each)
		}
	}
	return objects, min(unpacked, mostUnpacked)
}

// mostUnpacked suffices for text files of 50 MB.
const mostUnpacked = 192 << 20

// Walk returns the memory of a child that walks or packs all objects of a repository.
func (m *Memory) Walk(dir string) int64 {
	objects, unpacked := Packs(dir)
	return min(64<<20+500*objects+unpacked, m.Total/2)
}

// OutOfMemory reports whether git's standard error contains an out-of-memory error.
func OutOfMemory(stderr string) bool {
	stderr = strings.ToLower(stderr)
	for _, phrase := range []string{"out of memory", "attempting to allocate", "mmap failed", "annot allocate memory"} {
		if strings.Contains(stderr, phrase) {
			return true
		}
	}
	return false
}
