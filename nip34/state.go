package nip34

import (
	"fmt"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// State contains the refs of a repository (NIP-34, kind 30618) as its author states them.
type State struct {
	Event *nostr.Event
	ID    graspsync.EventID
	// Ref has the author and identifier of the state. The author need not own such a repository.
	Ref       graspsync.RepoRef
	CreatedAt nostr.Timestamp // seconds, Unix time
	// HEAD is the branch to which HEAD points, zero without a valid one.
	HEAD RefName
	// Refs maps branches and tags to their objects. No name is a folder of another name.
	Refs map[RefName]ObjectID
	// Abbreviated reports whether a ref, which is not in Refs, has an abbreviated object id.
	Abbreviated bool
}

// Sizes in bytes, of a state and of a ref.
const (
	bytesState = 256
	bytesRef   = 128
)

// Size returns the approximate memory of a state in bytes, without its event.
func (s *State) Size() int { return bytesState + bytesRef*len(s.Refs) }

// Key returns the creation time and id, which order the states of one author and identifier.
func (s *State) Key() graspsync.EventKey { return graspsync.EventKey{CreatedAt: s.CreatedAt, ID: s.ID} }

const symbolicPrefix = "ref: "

const maxRefShown = 150

// ParseState reads a repository state. It ignores tags that name no branch or tag, peeled tags
// (^{}), symbolic values ("ref: ") and repetitions. An object id of 4 to 39 digits sets Abbreviated,
// because the compliance suite of GRASP wants such states held. Other unreadable refs are errors,
// because the state would delete them. Errors wrap [ErrInvalid].
func ParseState(ev graspsync.Event) (*State, error) {
	ref, err := parseHeader(ev, graspsync.KindState)
	if err != nil {
		return nil, err
	}
	s := &State{Event: ev.Event, ID: ev.ID, Ref: ref, CreatedAt: ev.CreatedAt, Refs: make(map[RefName]ObjectID)}
	head, _ := firstValue(ev.Event, "HEAD")
	branch := strings.TrimPrefix(head, symbolicPrefix) // some clients write the name without prefix
	if name, err := ParseRefName(branch); err == nil && strings.HasPrefix(branch, branchPrefix) {
		s.HEAD = name
	}
	for _, tag := range ev.Tags {
		if len(tag) > 0 && (strings.HasPrefix(tag[0], branchPrefix) || strings.HasPrefix(tag[0], tagPrefix)) && !strings.HasSuffix(tag[0], "^{}") {
			if err := s.addRef(tag); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, graspsync.PrintableAtMost(tag[0], maxRefShown), err)
			}
		}
	}
	for name := range s.Refs {
		if folder, taken := s.enclosingRef(name); taken {
			return nil, fmt.Errorf("%w: refs %s and %s exclude each other", ErrInvalid, folder, name)
		}
	}
	return s, nil
}

func (s *State) enclosingRef(ref RefName) (folder RefName, taken bool) {
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

func (s *State) addRef(tag nostr.Tag) error {
	name, err := ParseRefName(tag[0])
	if err != nil {
		return err
	}
	if len(tag) < 2 {
		return errNoObject
	}
	if _, again := s.Refs[name]; again || strings.HasPrefix(tag[1], symbolicPrefix) {
		return nil
	}
	if isAbbreviated(tag[1]) {
		s.Abbreviated = true
		return nil
	}
	object, err := parseNonNullID(tag[1])
	if err == nil {
		s.Refs[name] = object
	}
	return err
}
