package grasp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/inuse"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Lacking is a repository that does not have all that its newest state names.
type Lacking struct {
	Ref graspsync.RepoRef
	// State is the newest state that decides about its refs, stored or waiting.
	State graspsync.EventID
	// Missing is how many of the objects are not here that the refs of the state name.
	Missing int
}

// Lacking yields the repositories that are announced and hosted here and lack objects which their newest
// state names, in any order; an error is the last pair. It asks the repositories themselves, one after
// the other. One that is blocked is not looked at. It may be called with and without Run.
func (s *Server) Lacking(ctx context.Context) iter.Seq2[Lacking, error] {
	return func(yield func(Lacking, error) bool) {
		hosted, err := s.hosted(ctx)
		if err != nil {
			yield(Lacking{}, err)
			return
		}
		for _, ref := range hosted {
			l, err := s.lacks(ctx, ref)
			if err != nil {
				yield(Lacking{}, fmt.Errorf("looking at %s: %w", graspsync.Printable(ref.String()), err))
				return
			}
			if l.Missing > 0 && !yield(l, nil) {
				return
			}
		}
	}
}

// hosted returns the repositories that are announced here, and not blocked.
func (s *Server) hosted(ctx context.Context) (out []graspsync.RepoRef, err error) {
	for ev, err := range s.sync.Store().Events(ctx, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}) {
		if err != nil {
			return nil, fmt.Errorf("reading announcements: %w", err)
		}
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil || !s.lists(a) {
			continue
		}
		if _, blocked := s.commands.Rules().Event(ev); !blocked {
			out = append(out, a.Ref)
		}
	}
	return out, nil
}

func (s *Server) lacks(ctx context.Context, ref graspsync.RepoRef) (l Lacking, err error) {
	var st *nip34.State
	err = inuse.Wait(ctx, func() (err error) {
		st, err = s.purgatory.Authorised(ctx, ref)
		return err
	})
	if err != nil || st == nil {
		return l, err
	}
	l = Lacking{Ref: ref, State: st.ID}
	ids := make(map[nip34.ObjectID]struct{}, len(st.Refs))
	for _, id := range st.Refs {
		ids[id] = struct{}{}
	}
	dir, unlock, err := s.repos.Lock(ctx, ref)
	if errors.Is(err, purgatory.ErrNoRepository) {
		l.Missing = len(ids)
		return l, nil
	}
	if err != nil {
		return l, err
	}
	defer unlock()
	missing, err := s.fetcher.Missing(ctx, dir, slices.Collect(maps.Keys(ids)))
	l.Missing = len(missing)
	return l, err
}
