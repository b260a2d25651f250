package purgatory

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// uses say what data is coming for.
type uses struct {
	findings *findings
	sessions *fetchSessions
}

// needing returns the repositories that lack what an entry waits for.
func (u uses) needing(e refplan.Entry) (refs []graspsync.RepoRef) {
	for _, identifier := range identifiersOf(e) {
		refs = append(refs, u.findings.lacking(identifier, func(ref graspsync.RepoRef, n refplan.Need) bool {
			announces := e.Class == refplan.Announcement && !e.Soft && ref == e.Repos[0]
			return announces || slices.Contains(n.Entries, e.ID)
		})...)
	}
	return refs
}

// fetchesFor reports whether a request for what an entry waits for is under way that was
// made before its time was over. An announcement waits for whatever comes to its repository:
// while it is being ended nobody has one, and what waits for that would end as well.
func (u uses) fetchesFor(e refplan.Entry) bool {
	return slices.ContainsFunc(u.needing(e), func(ref graspsync.RepoRef) bool {
		began := u.sessions.since(ref)
		return !began.IsZero() && began.Before(e.Deadline)
	})
}
