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
	of map[string]promoted // by folder; guarded by mu
}

// promoted is what is known of one repository.
type promoted struct {
	ids   []nip34.ObjectID
	last  int    // how many of them came last
	stamp string // of the repository after that
}

func newParts() *parts { return &parts{of: make(map[string]promoted)} }

// took notes what was promoted, with all that it needs. It is kept from garbage collection
// until letGo. stamp is that of the repository now, empty if nobody knows.
func (p *parts) took(dir string, ids []nip34.ObjectID, stamp string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.of[dir]; !known && len(p.of) >= maxPartsDirs {
		for other := range p.of { // any: what is not told of is sent again
			delete(p.of, other)
			break
		}
	}
	all := append(p.of[dir].ids, ids...)
	all = slices.Clone(all[max(0, len(all)-maxParts):])
	p.of[dir] = promoted{ids: all, last: min(len(ids), len(all)), stamp: stamp}
}

func (p *parts) letGo(dir string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, dir)
}

func (p *parts) promoted(dir string) []nip34.ObjectID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.of[dir].ids)
}

// proven returns what was promoted last, with all that it needs, and the stamp of the
// repository after that: for as long as it has this, nothing that was needed has gone.
func (p *parts) proven(dir string) (ids []nip34.ObjectID, stamp string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.of[dir]
	return slices.Clone(of.ids[len(of.ids)-of.last:]), of.stamp
}
