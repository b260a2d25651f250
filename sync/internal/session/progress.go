package session

import "github.com/graspsync/graspsync"

// MaxLacking bounds the ids in [Report.Lacking].
const MaxLacking = 1_000

// compared takes in what a reconciliation found the relay to lack.
func (r *Report) compared(lacking [][32]byte) {
	r.Reconciled++
	r.LackingAll += len(lacking)
	for _, id := range lacking[:min(len(lacking), MaxLacking-len(r.Lacking))] {
		r.Lacking = append(r.Lacking, graspsync.EventID(id))
	}
}

// Progress is what is under way on a connection.
type Progress struct {
	Queries     int // filters of history that have not ended
	Requests    int // open requests for pages and ids
	Reconciling int // queries that reconcile
}

// Progress returns what is under way.
func (s *Session) Progress() Progress {
	return Progress{Queries: len(s.queries), Requests: s.historic, Reconciling: s.negActive}
}
