package gitfetch

import (
	"slices"
	"sync"

	"github.com/graspsync/graspsync/nip34"
)

// A repository that comes in parts has the earlier ones before a ref does: servers are told
// of so many of them, for so many repositories.
const (
	maxParts     = 64
	maxPartsDirs = 256
)

// parts are what was promoted to repositories, and no ref has yet. It is safe for
// concurrent use.
type parts struct {
	mu sync.Mutex
	of map[string][]nip34.ObjectID // by folder; guarded by mu
}

func newParts() *parts { return &parts{of: make(map[string][]nip34.ObjectID)} }

// took notes what was promoted, with all that it needs. It is kept from garbage collection
// until letGo.
func (p *parts) took(dir string, ids []nip34.ObjectID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.of[dir]; !known && len(p.of) >= maxPartsDirs {
		for other := range p.of { // any: what is not told of is sent again
			delete(p.of, other)
			break
		}
	}
	all := append(p.of[dir], ids...)
	p.of[dir] = slices.Clone(all[max(0, len(all)-maxParts):])
}

func (p *parts) letGo(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, dir)
}

func (p *parts) promoted(dir string) []nip34.ObjectID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.of[dir])
}
