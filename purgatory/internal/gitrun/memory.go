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

// Objects estimates the number of objects in the packs of a repository by the sizes of their indexes.
func Objects(dir string) (n int64) {
	files, _ := os.ReadDir(filepath.Join(dir, "objects", "pack")) // what can't be read has none that git could read
	for _, f := range files {
		if info, err := f.Info(); err == nil && strings.HasSuffix(f.Name(), ".idx") {
			n += info.Size() / 28 // an id, a checksum and an offset
		}
	}
	return n
}

// Walk is the memory of a child that walks over all objects of a repository, or packs them.
func (m *Memory) Walk(dir string) int64 { return min(64<<20+500*Objects(dir), m.Total/2) }
