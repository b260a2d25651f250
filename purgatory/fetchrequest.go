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

// fetchRequest is a request to one server for objects of states, or for objects that only pull
// requests name. These do not share a request, because anybody can write a pull request, and a
// server refuses the whole request for one missing object.
type fetchRequest struct {
	repo     graspsync.RepoRef
	from     graspsync.CloneURL
	pulls    bool // for objects that only pull requests name
	stranger bool // only pull requests name the server or the objects
	ids      []nip34.ObjectID
	hash     [32]byte   // of all that may be requested
	next     int        // the position in these after ids
	last     bool       // ids has the last of these
	roomless bool       // objects were left out that have no room
	whose    fetchOwner // unless several
	several  bool       // the objects are those of several authors
	apart    bool       // one author's objects are requested, of several
	lacked   bool       // the last request for all of these brought nothing
}

// fetchOwner is the author for whom objects are fetched, or the commit that pull requests of
// several authors name. It is zero for the objects of states.
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

// lackKey is the hash of a URL and of what is requested there.
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

// lack is that a server did not have the requested objects.
type lack struct {
	backoff.Streak          // in a row; the server is not asked before its end
	hash           [32]byte // of all that could be requested
	whatever       bool     // it is about every request, not only that of hash
	passed         bool     // the other kind of objects was requested since
	// full is the number of bytes that had no room, because repositories take up all that they may. The server is
	// asked again as soon as there is room for them.
	full int64
	// One answer is beyond a limit: one of 2^halved parts of the objects is requested, the first one at position from.
	halved, from int
	// An answer for several authors was not complete: the objects of one author are requested at a time.
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
	for other := range h.lacks { // any: to forget it costs a request
		if len(h.lacks) <= maxLacks {
			break
		}
		if other != k {
			delete(h.lacks, other)
		}
	}
}

// lacking reports whether the server is known to lack the objects.
func (h *repoFetches) lacking(now time.Time, q fetchRequest) bool {
	l, _ := h.lackOf(q.key())
	return l.Waits(now) && (l.hash == q.hash || l.whatever)
}

// full returns the bytes for which there must be room before the server is asked again, or zero.
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

// prefer returns the request for the objects of states, or for those of pull requests if only these
// name the server. While the server lacks these objects, every other request is for the other kind.
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

// choose returns the next request to a server.
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

// beyond reports whether a request is for other objects than an earlier one, or for those of one
// author where the reply could not be told apart by author.
func (q fetchRequest) beyond(asked fetchRequest) bool {
	if q.pulls != asked.pulls || q.apart && asked.several {
		return len(q.ids) > 0
	}
	had := setOf(asked.ids)
	return slices.ContainsFunc(q.ids, func(id nip34.ObjectID) bool { _, again := had[id]; return !again })
}

// learn records a reply. A server that lacks the objects is asked after waits that double, until
// other objects are missing. After a reply beyond a limit half of the objects is requested. If that
// was one object, the server is not asked for 24 h, not for this object if a pull request has no
// room for it, or for minutes if the time was up.
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
		l.halved-- // the others are fewer now
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
