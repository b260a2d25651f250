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
	store  state.Store // read-only
	change sync.Mutex  // held during a change
	now    atomic.Pointer[page]
}

// page is an immutable snapshot of all rules.
type page struct {
	rules    map[Subject]Rule // saved in the store
	ofFile   map[Subject]Rule
	followed []graspsync.RelayURL // Bootstrap of the file
}

// Open reads the rules from a store, in which only the RuleSet may write keys that begin with
// "rules/". It fails if a record cannot be read, because blocked authors would be served. The rules
// of the file are not saved.
func Open(ctx context.Context, store state.Store, file File) (*RuleSet, error) {
	if store == nil {
		return nil, errors.New("opening the rules: store is nil")
	}
	b := &RuleSet{store: store}
	p := &page{rules: make(map[Subject]Rule)}
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
		p.rules[r.Subject] = r
	}
	b.now.Store(p.withFile(file))
	return b, nil
}

func (p *page) withFile(f File) *page {
	next := *p
	next.followed, next.ofFile = f.Bootstrap, make(map[Subject]Rule, len(f.Rules))
	for _, r := range f.Rules {
		next.ofFile[r.Subject] = r
	}
	return &next
}

// SetFile replaces the rules of the file.
func (b *RuleSet) SetFile(f File) {
	b.change.Lock()
	defer b.change.Unlock()
	b.now.Store(b.now.Load().withFile(f))
}

// Set replaces the rule for a subject, durably. The error wraps [ErrRule] or [ErrFull], or is one
// of the store.
func (b *RuleSet) Set(ctx context.Context, r Rule) error {
	r.Reason, r.By = clean(r.Reason, MaxReason), clean(r.By, MaxReason)
	if r.Since.IsZero() {
		r.Since = time.Now()
	}
	r.Since = r.Since.Truncate(time.Second).UTC() // not rounded, because a refusal must not be older than its rule
	if err := r.check(); err != nil {
		return err
	}
	return b.replace(func(p *page) (*page, error) {
		if _, had := p.rules[r.Subject]; !had && len(p.rules) >= MaxRules {
			return nil, fmt.Errorf("%w: %d", ErrFull, MaxRules)
		}
		next := *p
		next.rules = maps.Clone(p.rules)
		next.rules[r.Subject] = r
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
	return b.replace(func(p *page) (*page, error) {
		if _, had := p.rules[s]; !had {
			if _, is := p.ofFile[s]; is {
				return nil, fmt.Errorf("%w: it is in the file", ErrNoRule)
			}
			return nil, ErrNoRule
		}
		next := *p
		next.rules = maps.Clone(p.rules)
		delete(next.rules, s)
		if err := b.store.Delete(ctx, prefixRule+s.String()); err != nil {
			return nil, fmt.Errorf("removing the rule for %s: %w", s, err)
		}
		return &next, nil
	})
}

func (b *RuleSet) replace(to func(*page) (*page, error)) error {
	b.change.Lock()
	defer b.change.Unlock()
	next, err := to(b.now.Load())
	if err == nil {
		b.now.Store(next)
	}
	return err
}

// Rule returns the rule for a subject, of Set before that of the file.
func (b *RuleSet) Rule(s Subject) (Rule, bool) { return b.now.Load().rule(s) }

func (p *page) rule(s Subject) (Rule, bool) {
	if r, ok := p.rules[s]; ok {
		return r, true
	}
	r, ok := p.ofFile[s]
	return r, ok
}

// All returns all effective rules, sorted by subject.
func (b *RuleSet) All() []Rule {
	p := b.now.Load()
	all := maps.Clone(p.ofFile)
	maps.Copy(all, p.rules)
	return slices.SortedFunc(maps.Values(all), func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Subject.Kind, b.Subject.Kind), strings.Compare(a.Subject.Name, b.Subject.Name))
	})
}

// Bootstrap returns the relays that are always followed: the configured ones and those of the file.
func (b *RuleSet) Bootstrap(configured []graspsync.RelayURL) (out []graspsync.RelayURL) {
	p := b.now.Load()
	for _, u := range slices.Concat(configured, p.followed) {
		if !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out
}

// Event returns the rule that blocks an event. A rule for an author blocks no deletions and
// requests to vanish, because their targets may be stored.
func (b *RuleSet) Event(ev graspsync.Event) (Rule, bool) {
	p := b.now.Load()
	if len(p.rules)+len(p.ofFile) == 0 || ev.IsZero() {
		return Rule{}, false
	}
	if r, ok := p.rule(OfEvent(ev.ID)); ok {
		return r, r.Action == Block
	}
	if stays(ev) {
		return Rule{}, false
	}
	own := isOwn(ev)
	if own {
		if r, ok := p.repository(graspsync.RepoRef{Owner: ev.PubKey, Identifier: ev.Tags.GetD()}); ok {
			return r, r.Action == Block
		}
	}
	if r, ok := p.rule(OfAuthor(ev.PubKey)); ok && r.Action == Block {
		return r, true
	}
	if own {
		return Rule{}, false
	}
	return p.aboutBlocked(ev)
}

// stays reports whether an event is a deletion or a request to vanish.
func stays(ev graspsync.Event) bool {
	return ev.Kind == graspsync.KindDeletion || ev.Kind == graspsync.KindVanish
}

// Hides returns the rule that forbids serving a deletion or request to vanish.
func (b *RuleSet) Hides(ev graspsync.Event) (Rule, bool) {
	if ev.IsZero() || !stays(ev) {
		return Rule{}, false
	}
	p := b.now.Load()
	r, ok := p.rule(OfEvent(ev.ID))
	if !ok {
		r, ok = p.rule(OfAuthor(ev.PubKey))
	}
	return r, ok && r.Action == Block
}

func isOwn(ev graspsync.Event) bool {
	return ev.Kind == graspsync.KindAnnouncement || ev.Kind == graspsync.KindState
}

// aboutBlocked returns a blocking rule if all repositories that an event names are blocked.
func (p *page) aboutBlocked(ev graspsync.Event) (found Rule, all bool) {
	for _, a := range nip34.Addresses(ev.Event) {
		ref, ok := a.Repo()
		if !ok {
			continue
		}
		r, ok := p.repository(ref)
		if !ok || r.Action != Block {
			return Rule{}, false // the event is about a repository that is not blocked
		}
		found, all = r, true
	}
	return found, all
}

// repository returns the rule for a repository, or the rule for its owner.
func (p *page) repository(ref graspsync.RepoRef) (Rule, bool) {
	if r, ok := p.rule(OfRepository(ref)); ok {
		return r, true
	}
	return p.rule(OfAuthor(ref.Owner))
}

// Repository returns the rule that blocks a repository.
func (b *RuleSet) Repository(ref graspsync.RepoRef) (Rule, bool) {
	r, ok := b.now.Load().repository(ref)
	return r, ok && r.Action == Block
}

// Host returns the rule that blocks the server at a host and port.
func (b *RuleSet) Host(at graspsync.HostPort) (Rule, bool) {
	p := b.now.Load()
	r, ok := p.rule(OfHost(at))
	if !ok {
		r, ok = p.rule(Subject{Relay, at.Host})
	}
	return r, ok && r.Action == Block
}

// Blocks implements sync.Rules. The dependencies are all rules that could allow the event.
func (b *RuleSet) Blocks(ev graspsync.Event) (reason string, until []graspsync.Dependency) {
	r, blocked := b.Event(ev)
	if !blocked {
		return "", nil
	}
	until = []graspsync.Dependency{Lifted(r.Subject), Lifted(OfEvent(ev.ID))}
	if isOwn(ev) {
		until = append(until, Lifted(OfRepository(graspsync.RepoRef{Owner: ev.PubKey, Identifier: ev.Tags.GetD()})))
	}
	for _, a := range nip34.Addresses(ev.Event) {
		if ref, ok := a.Repo(); ok {
			until = append(until, Lifted(OfRepository(ref)), Lifted(OfAuthor(ref.Owner)))
		}
	}
	switch r.Subject {
	case OfEvent(ev.ID):
		return reasonEvent, until
	case OfAuthor(ev.PubKey):
		return reasonAuthor, until
	}
	return reasonRepository, until // or its owner
}

// BlocksRepository implements sync.Rules.
func (b *RuleSet) BlocksRepository(ref graspsync.RepoRef) bool {
	_, blocked := b.Repository(ref)
	return blocked
}

// BlocksRelay implements sync.Rules.
func (b *RuleSet) BlocksRelay(u graspsync.RelayURL) bool {
	_, blocked := b.Host(u.HostPort())
	return blocked
}

// Deny is the Deny of egress.Config.
func (b *RuleSet) Deny(at graspsync.HostPort) bool {
	_, blocked := b.Host(at)
	return blocked
}

// Lifted returns the dependency that a change of the rule for s fulfills.
func Lifted(s Subject) graspsync.Dependency { return graspsync.OnRuleRemoved(s.String()) }
