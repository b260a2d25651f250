package control

import (
	"context"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/explain"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Explanation says all that a server knows about an event, a repository or a relay: why it is
// here, or is not. Is may be "blocked" as well, for what is not here and kept out by a rule, or "withheld", for a
// deletion or a request to vanish that is here, counts, and is served to nobody because of one.
type Explanation struct {
	explain.Explanation
	// Blocked is the rule that keeps it out, nil if none is known.
	Blocked *Blocked `json:"blocked,omitempty"`
}

// Explainer answers as an [explain.Explainer] does, of a server that goes by rules. All its fields are set.
type Explainer struct {
	explain.Explainer
	Rules *rules.Book
	Store relaysync.Store
}

// Explain answers why something is here, or is not, and which rule keeps it out.
func (s Explainer) Explain(ctx context.Context, text string) (Explanation, error) {
	answer, err := s.Explainer.Explain(ctx, text)
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
func (s Explainer) explainBlocked(ctx context.Context, x *Explanation) error {
	switch x.Subject {
	case nip34.SubjectEvent:
		return s.explainBlockedEvent(ctx, x)
	case nip34.SubjectRepo:
		if rule, is := s.Rules.Repository(x.Repository.Ref); is {
			x.Is = isBlocked
			x.blocked(rule)
		}
	case nip34.SubjectRelay:
		if rule, is := s.Rules.Host(x.Relay.URL.HostPort()); is {
			x.blocked(rule)
		}
	}
	return nil
}
