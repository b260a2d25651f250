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

// Explanation is an [explain.Explanation] with the rule that blocks the subject. Is may also be
// "blocked", or "withheld" for a deletion or request to vanish that is in force but not served.
type Explanation struct {
	explain.Explanation
	Blocked *Blocked `json:"blocked,omitempty"`
}

// Explainer is an [explain.Explainer] of a server with rules.
type Explainer struct {
	explain.Explainer
	Rules *rules.RuleSet
	Store relaysync.Store
}

// Explain answers why a subject is stored or not, and which rule blocks it.
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
