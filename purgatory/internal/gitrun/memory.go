package gitrun

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/graspsync/graspsync/limit"
)

// Memory is the memory that all git children together may have, in bytes. A child takes its part
// before it starts, and the system keeps it to that. Memory is safe for concurrent use.
type Memory struct {
	*limit.Slots
	Total, Part int64 // Part is a quarter, the most that one client may have
	Asks        int64 // an eighth, which is not in Slots: see AskMemory
}

// DefaultMemory is the default of Total.
const DefaultMemory = 2 << 30

// AskMemory is the memory of a child that only lists refs. Who asks what is in a repository does not
// wait for clones: these children have an eighth of the total for themselves.
const AskMemory = 32 << 20

// NewMemory returns the memory of so many bytes.
func NewMemory(total int64) *Memory {
	m := &Memory{Total: total, Part: total / 4, Asks: total / 8}
	m.Slots = limit.NewSlots(total-m.Asks, m.Part)
	return m
}

// Packs estimates from the sizes of files the number of objects in the packs of a repository, and the memory in which git
// unpacks a large one with the object that it is a delta of.
func Packs(dir string) (objects, unpacked int64) {
	files, _ := os.ReadDir(filepath.Join(dir, "objects", "pack")) // what can't be read has none that git could read
	for _, f := range files {
		info, err := f.Info()
		switch {
		case err != nil:
		case strings.HasSuffix(f.Name(), ".idx"):
			objects += info.Size() / 28 // an id, a checksum and an offset
		case strings.HasSuffix(f.Name(), ".pack"):
			unpacked += 16 * info.Size() // text is compressed to a quarter, and there are two of them and copies
		}
	}
	return objects, min(unpacked, mostUnpacked)
}

// mostUnpacked is the maximum memory that is taken for large objects, in bytes. It is enough for text files of 50 MB.
const mostUnpacked = 192 << 20

// Walk is the memory of a child that walks over all objects of a repository, or packs them.
func (m *Memory) Walk(dir string) int64 {
	objects, unpacked := Packs(dir)
	return min(64<<20+500*objects+unpacked, m.Total/2)
}

// OutOfMemory reports whether what git wrote to its standard error says that it needed more memory than it may have.
func OutOfMemory(stderr string) bool {
	stderr = strings.ToLower(stderr)
	for _, phrase := range []string{"out of memory", "attempting to allocate", "mmap failed", "annot allocate memory"} {
		if strings.Contains(stderr, phrase) {
			return true
		}
	}
	return false
}
