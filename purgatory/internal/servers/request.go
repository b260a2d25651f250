package servers

import (
	"crypto/sha256"
	"encoding/hex"
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

	hash string // of all objects that may be requested
	next int    // position after IDs among them
}

// lackKey returns the key of a lack of some objects, in all of these requests.
func lackKey(from graspsync.CloneURL, what string) string { return hashed(from.String() + what) }

func (q Request) key() string {
	if q.Pulls {
		return lackKey(q.From, " pulls")
	}
	return lackKey(q.From, "")
}

func (r *record) lackOf(k string) (l lack) {
	if r != nil {
		l = r.Lacks[k]
	}
	return l
}

func (r *record) put(k string, l lack) {
	r.Lacks[k] = l
	for other := range r.Lacks { // in random order; a dropped record costs one request
		if len(r.Lacks) <= maxLacks {
			break
		}
		if other != k {
			delete(r.Lacks, other)
		}
	}
}

func (r *record) lacking(now time.Time, q Request) bool {
	l := r.lackOf(q.key())
	return l.Waits(now) && (l.IDs == q.hash || l.IDs == "")
}

func (r *record) all(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need, pulls bool) Request {
	q := Request{Repo: ref, From: from, Pulls: pulls}
	sum := sha256.New()
	for _, id := range n.IDs {
		if _, ofState := slices.BinarySearchFunc(n.States, id, refplan.CompareIDs); ofState == pulls {
			continue
		}
		if pulls {
			if l := r.lackOf(lackKey(from, " "+id.String())); l.Waits(now) {
				q.Roomless = true
				continue
			}
		}
		q.IDs = append(q.IDs, id)
		sum.Write([]byte(id.String()))
	}
	q.hash = hex.EncodeToString(sum.Sum(nil))
	return q
}

// prefer returns the request for objects of states or, while the server lacks these, of pull
// requests. A server that only pull requests name is asked for the latter only.
func (r *record) prefer(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) Request {
	rest := r.all(now, ref, from, n, true)
	if !slices.Contains(n.Own, from) {
		return rest
	}
	first := r.all(now, ref, from, n, false)
	switch {
	case len(first.IDs) == 0 && (len(rest.IDs) > 0 || rest.Roomless):
		return rest
	case len(first.IDs) == 0 || len(rest.IDs) == 0:
		return first
	case r.lacking(now, first):
		return rest
	}
	return first
}

func (r *record) choose(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) Request {
	q := r.prefer(now, ref, from, n)
	l := r.lackOf(q.key())
	all, at := q.IDs, 0
	if l.halved > 0 {
		at = l.from % max(1, len(all))
	}
	q.Lacked = l.Times > 0 && l.IDs == q.hash
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
func (r *record) learn(now time.Time, wait time.Duration, q Request, outcome syncqueue.Outcome) {
	l := r.lackOf(q.key())
	if l.IDs != q.hash {
		l = lack{IDs: q.hash, halved: l.halved, from: l.from}
	}
	tomorrow := backoff.Streak{Until: now.Add(day)}
	tooMuch := outcome >= syncqueue.TooMuch
	switch {
	case tooMuch && len(q.IDs) > 1:
		l = lack{IDs: q.hash, halved: l.halved + 1, from: l.from}
	case tooMuch && outcome == syncqueue.NoRoom:
		r.put(lackKey(q.From, " "+q.IDs[0].String()), lack{Streak: tomorrow})
		if l.halved == 0 {
			return
		}
		l.halved-- // halve less, because one object is gone
	case outcome == syncqueue.Full: // other objects may have room
		l = lack{IDs: q.hash, Streak: tomorrow, halved: l.halved, from: q.next}
	case outcome == syncqueue.Slow:
		l.Again(now, wait, lackMost)
	case tooMuch:
		l = lack{Streak: tomorrow}
	case outcome == syncqueue.Nothing:
		l.from = q.next
		l.Again(now, wait, lackMost)
	default:
		return
	}
	r.put(q.key(), l)
}
