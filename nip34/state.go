package nip34

import (
	"fmt"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// State says what the refs of a repository point to (NIP-34, kind 30618), in the
// eyes of its author.
type State struct {
	Event *nostr.Event
	ID    graspsync.EventID
	// Ref joins the state's author and identifier. The author need not own a
	// repository of that identifier: see [Family].
	Ref       graspsync.RepoRef
	CreatedAt nostr.Timestamp // seconds, Unix time
	// HEAD is the branch it points to, spelled with "ref: " before it or without; zero if
	// it does not say, or says something else.
	HEAD RefName
	// Refs has the branches and tags with the objects they point to. It may be empty,
	// which means a repository without refs.
	Refs map[RefName]ObjectID
	// Dropped counts refs that can't be used: bad names, values that are no object
	// ids, repetitions. No name among Refs is a folder of another one: git has either.
	Dropped int
	// Impossible counts those of the dropped that are branches and tags with a value that
	// is no object id and no other ref: no repository can ever be what the state says, and
	// to leave them out would say that they are to be deleted.
	Impossible int
}

// What a state takes up besides its event, in bytes, and a ref without the text of its name, which
// the event has as well.
const (
	bytesState = 256
	bytesRef   = 128
)

// Size is about how many bytes a state takes up besides its event.
func (s *State) Size() int { return bytesState + bytesRef*len(s.Refs) }

// Stamp returns what decides between two states of one author and identifier.
func (s *State) Stamp() graspsync.Stamp { return graspsync.Stamp{CreatedAt: s.CreatedAt, ID: s.ID} }

// symbolic is before the name of a ref that something points to in place of an object.
const symbolic = "ref: "

// ParseState reads a repository state. Peeled tags (^{}) are passed over. An event
// of another kind, without a usable identifier, or with a ref below the name of another
// one, which no repository can have, is an error that wraps [ErrInvalid].
func ParseState(ev graspsync.Event) (*State, error) {
	ref, err := parseHeader(ev, graspsync.KindState)
	if err != nil {
		return nil, err
	}
	s := &State{Event: ev.Event, ID: ev.ID, Ref: ref, CreatedAt: ev.CreatedAt, Refs: make(map[RefName]ObjectID)}
	head, _ := firstValue(ev.Event, "HEAD")
	branch := strings.TrimPrefix(head, symbolic) // some write the name alone
	if name, err := ParseRefName(branch); err == nil && strings.HasPrefix(branch, "refs/heads/") {
		s.HEAD = name
	}
	for _, tag := range ev.Tags {
		if len(tag) > 0 && strings.HasPrefix(tag[0], "refs/") && !strings.HasSuffix(tag[0], "^{}") {
			s.add(tag)
		}
	}
	for name := range s.Refs {
		if folder, taken := s.above(name); taken {
			return nil, fmt.Errorf("%w: refs %s and %s exclude each other", ErrInvalid, folder, name)
		}
	}
	return s, nil
}

// above returns a ref whose name is a folder of another one's.
func (s *State) above(ref RefName) (folder RefName, taken bool) {
	for name := ref.name; ; {
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return RefName{}, false
		}
		name = name[:i]
		if _, taken := s.Refs[RefName{name}]; taken {
			return RefName{name}, true
		}
	}
}

func (s *State) add(tag nostr.Tag) {
	if len(tag) < 2 {
		s.Dropped++
		return
	}
	name, badName := ParseRefName(tag[0])
	object, badObject := ParseObjectID(tag[1])
	if _, again := s.Refs[name]; again || badName != nil || badObject != nil {
		s.Dropped++
		if !again && badName == nil && !strings.HasPrefix(tag[1], symbolic) {
			s.Impossible++
		}
		return
	}
	s.Refs[name] = object
}
