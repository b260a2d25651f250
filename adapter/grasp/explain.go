package grasp

import (
	"context"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/nip34"
)

// Explanation says all that a server knows about an event, a repository or a relay: why it is
// here, or is not. Is may be "blocked" as well, for what is not here and kept out by a rule, or "withheld", for a
// deletion or a request to vanish that is here, counts, and is served to nobody because of one.
type Explanation struct {
	explain.Explanation
	// Blocked is the rule of [Config].Rules that keeps it out, nil if none is known.
	Blocked *Blocked `json:"blocked,omitempty"`
}

// Explain answers why something is here, or is not, as [explain.Explainer] does, and which rule keeps it
// out.
func (s *Server) Explain(ctx context.Context, text string) (Explanation, error) {
	all := explain.Explainer{Sync: s.sync, Purgatory: s.purgatory, Repositories: s.repos}
	answer, err := all.Explain(ctx, text)
	if err != nil {
		return Explanation{}, err
	}
	x := Explanation{Explanation: answer}
	if err := s.explainBlocked(ctx, &x); err != nil {
		return Explanation{}, fmt.Errorf("explaining %s: %w", graspsync.Printable(x.Asked), err)
	}
	return x, nil
}

// explainBlocked says which rule keeps it out.
func (s *Server) explainBlocked(ctx context.Context, x *Explanation) error {
	switch x.Subject {
	case nip34.SubjectEvent:
		return s.explainBlockedEvent(ctx, x)
	case nip34.SubjectRepo:
		if rule, is := s.commands.Rules().Repository(x.Repository.Ref); is {
			x.Is = isBlocked
			x.blocked(rule)
		}
	case nip34.SubjectRelay:
		if rule, is := s.commands.Rules().Host(x.Relay.URL.HostPort()); is {
			x.blocked(rule)
		}
	}
	return nil
}
