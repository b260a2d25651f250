package servers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// keyRecord is the prefix of records. Without them, a stranger who makes us crash would cause repeated
// requests after each start.
const keyRecord = "purgatory/fetches/"

func keyOf(name string) string { return keyRecord + hashed(name) }

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

// record is about a server or a repository. It is stored as JSON, in which a field name never changes
// its meaning.
type record struct {
	Name   string         `json:"name"`            // host and port of a server, or address of a repository
	Last   time.Time      `json:"last,omitzero"`   // last request to a server
	Recent int            `json:"recent,omitzero"` // requests to it in the minute before Last
	Pause  backoff.Streak `json:"pause,omitzero"`  // of a broken server, or between incomplete attempts for a repository
	// Bytes from a server, or for a repository. Strangers are those for a repository whose server or
	// objects only pull requests name.
	Bytes     usage           `json:"bytes,omitzero"`
	Strangers usage           `json:"strangers,omitzero"`
	Lacks     map[string]lack `json:"lacks,omitempty"` // by hash of the URL and the kind or id of objects
}

type usage struct {
	limit.Day
	requests int
}

// today returns the bytes of the current day, which starts with its first bytes.
func (u *usage) today(now time.Time) int64 {
	if u.Units == 0 || now.Sub(u.Since) >= day {
		u.Day = limit.Day{Since: now}
	}
	return u.Units
}

// lack records that a server did not have the requested objects.
type lack struct {
	backoff.Streak        // consecutive failures, and the time before which the server is not asked
	IDs            string `json:"ids,omitempty"` // hash of all objects that could be requested; empty: any objects

	// If a reply exceeds a limit, 1/2^halved of the objects is requested, from position from.
	halved, from int
}

// isWorth reports whether a record is not empty.
func (r *record) isWorth(now time.Time) bool {
	later := now.Add(-day)
	for _, l := range r.Lacks {
		if l.Waits(now) {
			return true
		}
	}
	return r.Bytes.today(now)+r.Strangers.today(now) > 0 || r.inUse() || now.Sub(r.Last) < time.Minute ||
		r.Pause.Waits(later) // also after its end, because it goes on doubling
}

func (r *record) inUse() bool { return r.Bytes.requests+r.Strangers.requests > 0 }

// encoded returns the JSON of a record. It charges most bytes for a request in flight, because they
// may have arrived when the process ends.
func (r *record) encoded(now time.Time, most int64) ([]byte, error) {
	c := *r
	for _, u := range []*usage{&c.Bytes, &c.Strangers} {
		if u.Units = u.today(now) + int64(u.requests)*most; u.Units == 0 {
			u.Day = limit.Day{}
		}
	}
	c.Lacks = maps.Clone(r.Lacks)
	maps.DeleteFunc(c.Lacks, func(_ string, l lack) bool { return l.IDs == "" && !l.Waits(now) })
	last := slices.SortedFunc(maps.Keys(c.Lacks), func(a, b string) int { return c.Lacks[b].Until.Compare(c.Lacks[a].Until) })
	for _, k := range last[min(len(last), savedLacks):] {
		delete(c.Lacks, k)
	}
	return json.Marshal(c)
}

var errRecord = errors.New("not a record of ours")

// decode reads a record of an earlier process. The clock may have been set back.
func decode(now time.Time, key string, value []byte) (*record, error) {
	r := new(record)
	if err := json.Unmarshal(value, r); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	if key != keyOf(r.Name) {
		return nil, fmt.Errorf("%w: name %s", errRecord, graspsync.Printable(r.Name))
	}
	r.Last, r.Pause = backoff.ClampFuture(r.Last, now, 0), r.Pause.Restored(now, day)
	for _, u := range []*usage{&r.Bytes, &r.Strangers} {
		u.Day = limit.Day{Since: backoff.ClampFuture(u.Since, now, 0), Units: max(0, u.Units)}
	}
	saved := r.Lacks
	r.Lacks = make(map[string]lack)
	for k, l := range saved {
		longest := lackMost
		if l.IDs == "" {
			longest = day
		}
		l.Streak = l.Restored(now, longest)
		r.Lacks[k] = l
	}
	return r, nil
}

// Load reads the records of earlier processes. Unreadable records are counted and deleted.
func (rs *Records) Load(ctx context.Context, now time.Time) (repos map[graspsync.RepoRef]backoff.Streak, domains []syncqueue.PastDomain, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	repos = make(map[graspsync.RepoRef]backoff.Streak)
	err = rs.buffer.Load(ctx, keyRecord, func(key string, value []byte) {
		r, err := decode(now, key, value)
		var who limit.Stranger
		if err == nil {
			if ref, bad := graspsync.ParseRepoRef(r.Name); bad == nil {
				who = repositories
				if r.Pause.Times > 0 {
					repos[ref] = r.Pause
				}
			} else if u, bad := graspsync.ParseCloneURL("https://" + r.Name); bad == nil && u.HostPort().String() == r.Name {
				domains = append(domains, syncqueue.PastDomain{Domain: u.HostPort(), Last: r.Last, Recent: r.Recent, Broken: r.Pause})
			} else {
				err = fmt.Errorf("%w: name %s", errRecord, graspsync.Printable(r.Name))
			}
		}
		switch {
		case err != nil:
			rs.cfg.Unreadable()
			rs.cfg.Logger.Error("reading records of git fetches failed", "key", graspsync.Printable(key), "error", graspsync.Printable(err.Error()))
		case r.isWorth(now) && rs.records.Len() < 2*maxKept:
			rs.records.Put(key, who, 0, r)
			return
		case r.isWorth(now):
			rs.cfg.Dropped("server_memory", 1)
		}
		rs.buffer.Put(key, func() ([]byte, bool) { return nil, false })
	})
	if err != nil {
		return nil, nil, fmt.Errorf("reading records of git fetches: %w", err)
	}
	return repos, domains, nil
}

func (rs *Records) save(r *record) {
	c := rs.change(r)
	rs.buffer.Put(c.Key, c.Value)
}

// change deletes the record if it is empty.
func (rs *Records) change(r *record) writebehind.Change {
	key := keyOf(r.Name)
	return writebehind.Change{Key: key, Value: func() ([]byte, bool) {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		r, known := rs.records.Get(key)
		now := time.Now()
		if !known || !r.isWorth(now) {
			rs.records.Delete(key)
			return nil, false
		}
		data, err := r.encoded(now, rs.cfg.MaxFetch)
		return data, err == nil
	}}
}
