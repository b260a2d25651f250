package rules

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
)

// prefixRule begins the keys of the store.
const prefixRule = "rules/rule/"

// Messages to clients. They are metric labels too.
const (
	reasonAuthor     = "blocked: this server takes nothing by this author"
	reasonRepository = "blocked: this server takes nothing about this repository"
	reasonEvent      = "blocked: this server does not take this event"
)

// RuleSet is the set of rules of a server, made by [Open]. It is safe for concurrent use. Lookups
// never block.
type RuleSet struct {
	store    state.Store // read-only
	changing sync.Mutex  // held during a change
	current  atomic.Pointer[snapshot]
}

// snapshot contains all rules at a time. It is immutable.
type snapshot struct {
	savedRules map[Subject]Rule // saved in the store
	fileRules  map[Subject]Rule
	bootstrap  []graspsync.RelayURL // Bootstrap of the file
}

// Open reads the rules from a store, in which only the RuleSet may write keys that begin with
// "rules/". It fails if a record cannot be read, because blocked authors would be served. The rules
// of the file are not saved.
func Open(ctx context.Context, store state.Store, file File) (*RuleSet, error) {
	if store == nil {
		return nil, errors.New("opening the rules: store is nil")
	}
	b := &RuleSet{store: store}
	p := &snapshot{savedRules: make(map[Subject]Rule)}
	for record, err := range store.Each(ctx, prefixRule) {
		var r Rule
		if err == nil {
			err = json.Unmarshal(record.Value, &r)
		}
		if err == nil {
			err = r.check()
		}
		if err != nil {
			return nil, fmt.Errorf("reading the rules: %q: %w", record.Key, err)
		}
		p.savedRules[r.Subject] = r
	}
	b.current.Store(p.withFile(file))
	return b, nil
}

func (p *snapshot) withFile(f File) *snapshot {
	next := *p
	next.bootstrap, next.fileRules = f.Bootstrap, make(map[Subject]Rule, len(f.Rules))
	for _, r := range f.Rules {
		next.fileRules[r.Subject] = r
	}
	return &next
}

// SetFile replaces the rules of the file.
func (b *RuleSet) SetFile(f File) {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.current.Store(b.current.Load().withFile(f))
}

// Set replaces the rule for a subject, durably. The error wraps [ErrRule] or [ErrFull], or is one
// of the store.
func (b *RuleSet) Set(ctx context.Context, r Rule) error {
	r.Reason, r.By = cleanText(r.Reason, MaxReason), cleanText(r.By, MaxReason)
	if r.Since.IsZero() {
		r.Since = time.Now()
	}
	r.Since = r.Since.Truncate(time.Second).UTC() // not rounded, because a refusal must not be older than its rule
	if err := r.check(); err != nil {
		return err
	}
	return b.replace(func(p *snapshot) (*snapshot, error) {
		if _, had := p.savedRules[r.Subject]; !had && len(p.savedRules) >= MaxRules {
			return nil, fmt.Errorf("%w: %d", ErrFull, MaxRules)
		}
		next := *p
		next.savedRules = maps.Clone(p.savedRules)
		next.savedRules[r.Subject] = r
		value, err := json.Marshal(r)
		if err == nil {
			err = b.store.Put(ctx, state.Record{Key: prefixRule + r.Subject.String(), Value: value})
		}
		if err != nil {
			return nil, fmt.Errorf("saving the rule for %s: %w", r.Subject, err)
		}
		return &next, nil
	})
}

// Unset removes a rule that Set stored. The error wraps [ErrNoRule] if there is none.
func (b *RuleSet) Unset(ctx context.Context, s Subject) error {
	return b.replace(func(p *snapshot) (*snapshot, error) {
		if _, had := p.savedRules[s]; !had {
			if _, is := p.fileRules[s]; is {
				return nil, fmt.Errorf("%w: it is in the file", ErrNoRule)
			}
			return nil, ErrNoRule
		}
		next := *p
		next.savedRules = maps.Clone(p.savedRules)
		delete(next.savedRules, s)
		if err := b.store.Delete(ctx, prefixRule+s.String()); err != nil {
			return nil, fmt.Errorf("removing the rule for %s: %w", s, err)
		}
		return &next, nil
	})
}

func (b *RuleSet) replace(to func(*snapshot) (*snapshot, error)) error {
	b.changing.Lock()
	defer b.changing.Unlock()
	next, err := to(b.current.Load())
	if err == nil {
		b.current.Store(next)
	}
	return err
}

// Rule returns the rule for a subject, of Set before that of the file.
func (b *RuleSet) Rule(s Subject) (Rule, bool) { return b.current.Load().rule(s) }

func (p *snapshot) rule(s Subject) (Rule, bool) {
	if r, ok := p.savedRules[s]; ok {
		return r, true
	}
	r, ok := p.fileRules[s]
	return r, ok
}

// All returns all effective rules, sorted by subject.
func (b *RuleSet) All() []Rule {
	p := b.current.Load()
	all := maps.Clone(p.fileRules)
	maps.Copy(all, p.savedRules)
	return slices.SortedFunc(maps.Values(all), func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Subject.Kind, b.Subject.Kind), strings.Compare(a.Subject.Name, b.Subject.Name))
	})
}

// Bootstrap returns the relays that are always followed: the configured relays and the relays of
// the file.
func (b *RuleSet) Bootstrap(configured []graspsync.RelayURL) (out []graspsync.RelayURL) {
	p := b.current.Load()
	for _, u := range slices.Concat(configured, p.bootstrap) {
		if !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out
}

// EventBlock returns the rule that blocks an event. A rule for an author blocks no deletions and
// requests to vanish, because their targets may be stored.
func (b *RuleSet) EventBlock(ev graspsync.Event) (Rule, bool) {
	p := b.current.Load()
	if len(p.savedRules)+len(p.fileRules) == 0 || ev.IsZero() {
		return Rule{}, false
	}
	if r, ok := p.rule(OfEvent(ev.ID)); ok {
		return r, r.Action == Block
	}
	if isTombstone(ev) {
		return Rule{}, false
	}
	own := isRepositoryEvent(ev)
	if own {
		if r, ok := p.repositoryRule(graspsync.RepoRef{Owner: ev.PubKey, Identifier: ev.Tags.GetD()}); ok {
			return r, r.Action == Block
		}
	}
	if r, ok := p.rule(OfAuthor(ev.PubKey)); ok && r.Action == Block {
		return r, true
	}
	if own {
		return Rule{}, false
	}
	return p.namedRepositoriesBlock(ev)
}

// isTombstone reports whether an event is a deletion or a request to vanish.
func isTombstone(ev graspsync.Event) bool {
	return ev.Kind == graspsync.KindDeletion || ev.Kind == graspsync.KindVanish
}

// ServeBlock returns the rule that forbids serving a deletion or request to vanish.
func (b *RuleSet) ServeBlock(ev graspsync.Event) (Rule, bool) {
	if ev.IsZero() || !isTombstone(ev) {
		return Rule{}, false
	}
	p := b.current.Load()
	r, ok := p.rule(OfEvent(ev.ID))
	if !ok {
		r, ok = p.rule(OfAuthor(ev.PubKey))
	}
	return r, ok && r.Action == Block
}

func isRepositoryEvent(ev graspsync.Event) bool {
	return ev.Kind == graspsync.KindAnnouncement || ev.Kind == graspsync.KindState
}

// namedRepositoriesBlock returns a blocking rule if all repositories that an event names are blocked.
func (p *snapshot) namedRepositoriesBlock(ev graspsync.Event) (found Rule, all bool) {
	for _, a := range nip34.Addresses(ev.Event) {
		ref, ok := a.Repo()
		if !ok {
			continue
		}
		r, ok := p.repositoryRule(ref)
		if !ok || r.Action != Block {
			return Rule{}, false // the event is about a repository that is not blocked
		}
		found, all = r, true
	}
	return found, all
}

// repositoryRule returns the rule for a repository, or the rule for its owner.
func (p *snapshot) repositoryRule(ref graspsync.RepoRef) (Rule, bool) {
	if r, ok := p.rule(OfRepository(ref)); ok {
		return r, true
	}
	return p.rule(OfAuthor(ref.Owner))
}

// RepositoryBlock returns the rule that blocks a repository.
func (b *RuleSet) RepositoryBlock(ref graspsync.RepoRef) (Rule, bool) {
	r, ok := b.current.Load().repositoryRule(ref)
	return r, ok && r.Action == Block
}

// HostBlock returns the rule that blocks the server at a host and port.
func (b *RuleSet) HostBlock(at graspsync.HostPort) (Rule, bool) {
	p := b.current.Load()
	r, ok := p.rule(OfHost(at))
	if !ok {
		r, ok = p.rule(Subject{Relay, at.Host})
	}
	return r, ok && r.Action == Block
}

// Blocks implements sync.Rules. The dependencies are all rules that could allow the event.
func (b *RuleSet) Blocks(ev graspsync.Event) (reason string, dependencies []graspsync.Dependency) {
	r, blocked := b.EventBlock(ev)
	if !blocked {
		return "", nil
	}
	dependencies = []graspsync.Dependency{OnRuleRemoved(r.Subject), OnRuleRemoved(OfEvent(ev.ID))}
	if isRepositoryEvent(ev) {
		dependencies = append(dependencies, OnRuleRemoved(OfRepository(graspsync.RepoRef{Owner: ev.PubKey, Identifier: ev.Tags.GetD()})))
	}
	for _, a := range nip34.Addresses(ev.Event) {
		if ref, ok := a.Repo(); ok {
			dependencies = append(dependencies, OnRuleRemoved(OfRepository(ref)), OnRuleRemoved(OfAuthor(ref.Owner)))
		}
	}
	switch r.Subject {
	case OfEvent(ev.ID):
		return reasonEvent, dependencies
	case OfAuthor(ev.PubKey):
		return reasonAuthor, dependencies
	}
	return reasonRepository, dependencies // or its owner
}

// BlocksRepository implements sync.Rules.
func (b *RuleSet) BlocksRepository(ref graspsync.RepoRef) bool {
	_, blocked := b.RepositoryBlock(ref)
	return blocked
}

// BlocksRelay implements sync.Rules.
func (b *RuleSet) BlocksRelay(u graspsync.RelayURL) bool {
	_, blocked := b.HostBlock(u.HostPort())
	return blocked
}

// Deny is the Deny of egress.Config.
func (b *RuleSet) Deny(at graspsync.HostPort) bool {
	_, blocked := b.HostBlock(at)
	return blocked
}

// OnRuleRemoved returns the dependency that a change of the rule for s fulfills.
func OnRuleRemoved(s Subject) graspsync.Dependency { return graspsync.OnRuleRemoved(s.String()) }
