package purgatory

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// fetchRequest is a request to one server, either for objects of states or for objects that only
// pull requests name. The two kinds do not share a request, because anyone can write a pull request
// and a server refuses the whole request for one missing object.
type fetchRequest struct {
	repo     graspsync.RepoRef
	from     graspsync.CloneURL
	pulls    bool // for objects that only pull requests name
	stranger bool // only pull requests name the server or the objects
	ids      []nip34.ObjectID
	hash     [32]byte   // of all objects that may be requested
	next     int        // position after ids among them
	last     bool       // ids contains the last one of them
	roomless bool       // objects without room were left out
	whose    fetchOwner // author of the objects, unless several
	several  bool       // the objects have several authors
	apart    bool       // objects of one author of several are requested
	lacked   bool       // the last request for the same objects brought nothing
}

// fetchOwner is the author for whom objects are fetched, or the commit that pull requests of
// several authors name. It is zero for objects of states.
type fetchOwner struct {
	author graspsync.PubKey
	id     nip34.ObjectID
}

func whoseOf(n refplan.Need, id nip34.ObjectID) fetchOwner {
	if by := n.Authors[id]; by != (graspsync.PubKey{}) {
		return fetchOwner{author: by}
	}
	return fetchOwner{id: id}
}

func (w fetchOwner) compare(o fetchOwner) int {
	return cmp.Or(w.author.Compare(o.author), refplan.CompareIDs(w.id, o.id))
}

// lackKey is the hash of a URL and the kind or id of the requested objects.
type lackKey [12]byte

func keyOf(from graspsync.CloneURL, what string) lackKey {
	sum := sha256.Sum256([]byte(from.String() + what))
	return lackKey(sum[:12])
}

func keyOfRoomless(from graspsync.CloneURL, id nip34.ObjectID) lackKey {
	return keyOf(from, " "+id.String())
}

func (q fetchRequest) key() lackKey {
	if q.pulls {
		return keyOf(q.from, " pulls")
	}
	return keyOf(q.from, "")
}

// lack records that a server did not have the requested objects.
type lack struct {
	backoff.Streak          // consecutive failures, and the time before which the server is not asked
	hash           [32]byte // of all objects that could be requested
	whatever       bool     // holds for every request, not only for that of hash
	passed         bool     // the other kind of objects was requested since
	// full is the number of bytes that did not fit into the limit of repositories. The server is
	// asked again as soon as there is room for them.
	full int64
	// If a reply exceeds a limit, 1/2^halved of the objects is requested, from position from.
	halved, from int
	// apart is set after an incomplete reply for several authors. Then each request is for one
	// author.
	apart bool
}

func (h *repoFetches) lackOf(k lackKey) (l lack, known bool) {
	if h != nil {
		l, known = h.lacks[k]
	}
	return l, known
}

func (h *repoFetches) put(k lackKey, l lack) {
	h.lacks[k] = l
	for other := range h.lacks { // in random order; a dropped record costs one request
		if len(h.lacks) <= maxLacks {
			break
		}
		if other != k {
			delete(h.lacks, other)
		}
	}
}

func (h *repoFetches) lacking(now time.Time, q fetchRequest) bool {
	l, _ := h.lackOf(q.key())
	return l.Waits(now) && (l.hash == q.hash || l.whatever)
}

// full returns the number of bytes for which there must be room before the server is asked again,
// or 0.
func (h *repoFetches) full(q fetchRequest) int64 {
	if l, _ := h.lackOf(q.key()); l.hash == q.hash {
		return l.full
	}
	return 0
}

// all returns the request for all objects of one kind.
func (h *repoFetches) all(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need, pulls bool) fetchRequest {
	q := fetchRequest{repo: ref, from: from, pulls: pulls, stranger: pulls || !slices.Contains(n.Own, from)}
	sum := sha256.New()
	for _, id := range n.IDs {
		if _, ofState := slices.BinarySearchFunc(n.States, id, refplan.CompareIDs); ofState == pulls {
			continue
		}
		if pulls {
			if l, _ := h.lackOf(keyOfRoomless(from, id)); l.Waits(now) {
				q.roomless = true
				continue
			}
		}
		q.ids = append(q.ids, id)
		sum.Write([]byte(id.String()))
	}
	sum.Sum(q.hash[:0])
	return q
}

// prefer returns the request for objects of states, or for objects of pull requests if only pull
// requests name the server. While the server lacks these objects, every second request is for the
// other kind.
func (h *repoFetches) prefer(sv *servers, now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) fetchRequest {
	first, rest := h.all(now, ref, from, n, false), h.all(now, ref, from, n, true)
	if !slices.Contains(n.Own, from) {
		first, rest = rest, first
	}
	switch {
	case len(first.ids) == 0 && (len(rest.ids) > 0 || rest.roomless):
		return rest
	case len(first.ids) == 0 || len(rest.ids) == 0:
		return first
	case h.lacking(now, first):
		return rest
	}
	l, known := h.lackOf(first.key())
	if known && l.hash == first.hash && !l.whatever && !l.passed && sv.refusesAt(now, rest) == "" {
		return rest
	}
	return first
}

func (h *repoFetches) choose(sv *servers, now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) fetchRequest {
	q := h.prefer(sv, now, ref, from, n)
	l, _ := h.lackOf(q.key())
	all, at := q.ids, 0
	if l.halved > 0 || l.apart {
		at = l.from % max(1, len(all))
	}
	q.lacked = l.Times > 0 && l.hash == q.hash
	if q.apart = l.apart && q.pulls; q.apart {
		slices.SortStableFunc(all, func(a, b nip34.ObjectID) int { return whoseOf(n, a).compare(whoseOf(n, b)) })
		end := at
		for end < len(all) && whoseOf(n, all[end]) == whoseOf(n, all[at]) {
			end++
		}
		q.ids = all[at:end]
	} else {
		q.ids = slices.Concat(all[at:], all[:at])
	}
	if len(q.ids) > 1 {
		q.ids = q.ids[:min(len(q.ids), max(1, len(all)>>l.halved))]
	}
	q.next = at + len(q.ids)
	q.last = q.next >= len(all)
	if q.pulls && len(q.ids) > 0 {
		q.whose = whoseOf(n, q.ids[0])
		q.several = slices.ContainsFunc(q.ids, func(id nip34.ObjectID) bool { return whoseOf(n, id) != q.whose })
	}
	return q
}

// beyond reports whether a request is for objects that were not in asked, or for one author after a
// reply for several authors.
func (q fetchRequest) beyond(asked fetchRequest) bool {
	if q.pulls != asked.pulls || q.apart && asked.several {
		return len(q.ids) > 0
	}
	had := setOf(asked.ids)
	return slices.ContainsFunc(q.ids, func(id nip34.ObjectID) bool { _, again := had[id]; return !again })
}

// learn records a reply. A server that lacks the objects is asked again after doubling waits, or
// when other objects are missing. After a reply beyond a limit, half of the objects is requested.
// If it was one object, the wait is 24 h for the server, 24 h for this object if its pull request
// has no room, or minutes if the time limit was exceeded.
func (h *repoFetches) learn(now time.Time, wait time.Duration, q fetchRequest, seen FetchEnded) {
	other := q
	other.pulls = !q.pulls
	if l, known := h.lackOf(other.key()); known {
		l.passed = true
		h.put(other.key(), l)
	}
	l, _ := h.lackOf(q.key())
	if l.hash != q.hash || l.whatever {
		l = lack{hash: q.hash, halved: l.halved, from: l.from, apart: l.apart}
	}
	tomorrow := backoff.Streak{Until: now.Add(day)}
	tooMuch := errors.Is(seen.Err, ErrLimit)
	switch {
	case tooMuch && len(q.ids) > 1:
		l = lack{hash: q.hash, halved: l.halved + 1, from: l.from, apart: l.apart, passed: true}
	case tooMuch && errors.Is(seen.Err, errNoRoom):
		h.put(keyOfRoomless(q.from, q.ids[0]), lack{whatever: true, Streak: tomorrow})
		if l.halved == 0 {
			return
		}
		l.halved-- // halve less, because one object is gone
	case errors.Is(seen.Err, ErrFull):
		l = lack{hash: q.hash, Streak: tomorrow, full: seen.Bytes, halved: l.halved, from: q.next, apart: l.apart}
	case errors.Is(seen.Err, ErrSlow):
		l.Again(now, wait, lackMost)
	case tooMuch:
		l = lack{whatever: true, Streak: tomorrow}
	case errors.Is(seen.Err, ErrNotServed), seen.Err == nil && seen.Missing == seen.Wanted:
		l.from, l.passed, l.full = q.next, false, 0
		switch {
		case q.several && seen.Err == nil: // it has objects of some author
			l.apart, l.from = true, 0
		case !l.apart || q.last:
			l.Again(now, wait, lackMost)
		}
	default:
		return
	}
	h.put(q.key(), l)
}
