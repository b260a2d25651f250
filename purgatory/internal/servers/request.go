package servers

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// Request is for objects of states or of pull requests, because a server refuses the whole request
// for one missing object.
type Request struct {
	Repo     graspsync.RepoRef
	From     graspsync.CloneURL
	Pulls    bool // for objects that only pull requests name
	IDs      []nip34.ObjectID
	Roomless bool // objects without room were left out
	Lacked   bool // the last request for the same objects brought nothing

	hash [32]byte // of all objects that may be requested
	next int      // position after IDs among them
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

func (q Request) key() lackKey {
	if q.Pulls {
		return keyOf(q.From, " pulls")
	}
	return keyOf(q.From, "")
}

// lack records that a server did not have the requested objects.
type lack struct {
	backoff.Streak          // consecutive failures, and the time before which the server is not asked
	hash           [32]byte // of all objects that could be requested
	whatever       bool     // holds for every request, not only for that of hash
	// If a reply exceeds a limit, 1/2^halved of the objects is requested, from position from.
	halved, from int
}

func (h *repoFetches) lackOf(k lackKey) (l lack) {
	if h != nil {
		l = h.lacks[k]
	}
	return l
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

func (h *repoFetches) lacking(now time.Time, q Request) bool {
	l := h.lackOf(q.key())
	return l.Waits(now) && (l.hash == q.hash || l.whatever)
}

// all returns the request for all objects of one kind.
func (h *repoFetches) all(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need, pulls bool) Request {
	q := Request{Repo: ref, From: from, Pulls: pulls}
	sum := sha256.New()
	for _, id := range n.IDs {
		if _, ofState := slices.BinarySearchFunc(n.States, id, refplan.CompareIDs); ofState == pulls {
			continue
		}
		if pulls {
			if l := h.lackOf(keyOfRoomless(from, id)); l.Waits(now) {
				q.Roomless = true
				continue
			}
		}
		q.IDs = append(q.IDs, id)
		sum.Write([]byte(id.String()))
	}
	sum.Sum(q.hash[:0])
	return q
}

// prefer returns the request for objects of states or, while the server lacks these, of pull
// requests. A server that only pull requests name is asked for the latter only.
func (h *repoFetches) prefer(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) Request {
	rest := h.all(now, ref, from, n, true)
	if !slices.Contains(n.Own, from) {
		return rest
	}
	first := h.all(now, ref, from, n, false)
	switch {
	case len(first.IDs) == 0 && (len(rest.IDs) > 0 || rest.Roomless):
		return rest
	case len(first.IDs) == 0 || len(rest.IDs) == 0:
		return first
	case h.lacking(now, first):
		return rest
	}
	return first
}

func (h *repoFetches) choose(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) Request {
	q := h.prefer(now, ref, from, n)
	l := h.lackOf(q.key())
	all, at := q.IDs, 0
	if l.halved > 0 {
		at = l.from % max(1, len(all))
	}
	q.Lacked = l.Times > 0 && l.hash == q.hash
	q.IDs = slices.Concat(all[at:], all[:at])
	if len(q.IDs) > 1 {
		q.IDs = q.IDs[:min(len(q.IDs), max(1, len(all)>>l.halved))]
	}
	q.next = at + len(q.IDs)
	return q
}

// Beyond reports whether a request is for objects that were not in asked.
func (q Request) Beyond(asked Request) bool {
	if q.Pulls != asked.Pulls {
		return len(q.IDs) > 0
	}
	return slices.ContainsFunc(q.IDs, func(id nip34.ObjectID) bool { return !slices.Contains(asked.IDs, id) })
}

// learn records a reply. A server that lacks the objects is asked again after doubling waits. After a
// reply beyond a limit, half of the objects is requested. If it was one object, the wait is 24 h for
// the server or, if its pull request has no room, for this object, or minutes after a time limit.
func (h *repoFetches) learn(now time.Time, wait time.Duration, q Request, outcome syncqueue.Outcome) {
	l := h.lackOf(q.key())
	if l.hash != q.hash || l.whatever {
		l = lack{hash: q.hash, halved: l.halved, from: l.from}
	}
	tomorrow := backoff.Streak{Until: now.Add(day)}
	tooMuch := outcome >= syncqueue.TooMuch
	switch {
	case tooMuch && len(q.IDs) > 1:
		l = lack{hash: q.hash, halved: l.halved + 1, from: l.from}
	case tooMuch && outcome == syncqueue.NoRoom:
		h.put(keyOfRoomless(q.From, q.IDs[0]), lack{whatever: true, Streak: tomorrow})
		if l.halved == 0 {
			return
		}
		l.halved-- // halve less, because one object is gone
	case outcome == syncqueue.Slow:
		l.Again(now, wait, lackMost)
	case tooMuch:
		l = lack{whatever: true, Streak: tomorrow}
	case outcome == syncqueue.Nothing:
		l.from = q.next
		l.Again(now, wait, lackMost)
	default:
		return
	}
	h.put(q.key(), l)
}
