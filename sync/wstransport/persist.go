package wstransport

import (
	"encoding/json"
	"hash/fnv"
	"slices"

	"github.com/graspsync/graspsync/egress"
)

const recordsPerChunk = 500

// Export implements [relaysync.Transport]. Each chunk is readable alone, because a crash may happen
// while some are written. A record stays in its chunk, so that a change affects few chunks.
func (t *Transport) Export() [][]byte { return chunksOf(t.cfg.Dialer.Budget().Export()) }

func chunksOf(all egress.BudgetState) [][]byte {
	n := uint32(1)
	for int(n)*recordsPerChunk < len(all.Addresses)+len(all.Hosts) {
		n *= 2
	}
	parts := make([]egress.BudgetState, n)
	for _, a := range all.Addresses {
		p := &parts[chunkIndex(a.Address.String(), n)]
		p.Addresses = append(p.Addresses, a)
	}
	for _, h := range all.Hosts {
		p := &parts[chunkIndex(h.Host, n)]
		p.Hosts = append(p.Hosts, h)
	}
	chunks := make([][]byte, n)
	for i, p := range parts {
		chunks[i], _ = json.Marshal(p) // numbers and names can always be encoded
	}
	return chunks
}

func chunkIndex(name string, n uint32) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum32() % n
}

// Import implements [relaysync.Transport]. Unreadable records are left out.
func (t *Transport) Import(chunks [][]byte) {
	var all egress.BudgetState
	for _, c := range chunks {
		var part egress.BudgetState
		if json.Unmarshal(c, &part) == nil {
			all.Addresses = append(all.Addresses, part.Addresses...)
			all.Hosts = append(all.Hosts, part.Hosts...)
		}
	}
	slices.SortStableFunc(all.Addresses, func(a, b egress.AddressRecord) int { return a.LastAttempt.Compare(b.LastAttempt) })
	t.cfg.Dialer.Budget().Import(all)
}
