package servers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// Load reads the records of earlier processes. Unreadable records are counted and deleted.
func (sv *Records) Load(ctx context.Context, now time.Time) (repos []syncqueue.PastRepo, domains []syncqueue.PastDomain, err error) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	err = errors.Join(
		recallEach(ctx, sv, keyServer, sv.hosts, func(r *serverRecord) (a graspsync.HostPort, s *server, err error) {
			if a, s, err = r.read(now); err == nil {
				domains = append(domains, syncqueue.PastDomain{Domain: a, Last: s.last, Recent: s.recent, Failures: s.broken.Times, BrokenUntil: s.broken.Until})
			}
			return a, s, err
		}, sv.serverRecord),
		recallEach(ctx, sv, keyFetches, sv.fetches, func(r *repoFetchesRecord) (ref graspsync.RepoRef, h *repoFetches, err error) {
			if ref, h, err = r.read(now, sv.cfg.MaxBackoff); err == nil && h.attempts.Times > 0 {
				repos = append(repos, syncqueue.PastRepo{Repo: ref, Attempts: h.attempts.Times, Next: h.attempts.Until})
			}
			return ref, h, err
		}, sv.fetchesRecord))
	if err != nil {
		return nil, nil, fmt.Errorf("reading records of git fetches: %w", err)
	}
	return repos, domains, nil
}

// recallEach reads the records with a prefix, and deletes unreadable and empty ones.
func recallEach[K comparable, V, R any](ctx context.Context, sv *Records, prefix string, into *limit.Table[K, V],
	read func(*R) (K, V, error), record func(K, V, time.Time) (R, bool),
) error {
	return sv.buffer.Load(ctx, prefix, func(key string, value []byte) (there bool, err error) {
		var r R
		err = json.Unmarshal(value, &r)
		if err == nil {
			var k K
			var v V
			if k, v, err = read(&r); err == nil {
				_, worth := record(k, v, time.Now())
				if worth && into.Len() < sv.cfg.MaxKept {
					into.Put(k, limit.Stranger{}, 0, v)
					return true, nil
				}
				if worth {
					sv.cfg.Dropped("server_memory", 1)
				}
				return false, sv.keep.Delete(ctx, key)
			}
		}
		sv.cfg.Unreadable()
		sv.cfg.Logger.Error("reading records of git fetches failed", "key", graspsync.Printable(key), "error", graspsync.Printable(err.Error()))
		return false, sv.keep.Delete(ctx, key)
	})
}

// Without these records, a stranger who makes us crash would cause repeated requests after each
// start.
const (
	keyServer  = "purgatory/server/"
	keyFetches = "purgatory/fetches/"
)

func serverKey(a graspsync.HostPort) string { return keyServer + hashed(a.String()) }

func fetchesKey(ref graspsync.RepoRef) string { return keyFetches + hashed(ref.String()) }

// A JSON field name never changes its meaning.
type serverRecord struct {
	Server      string    `json:"server"`
	Last        time.Time `json:"last"`             // last request
	Recent      int       `json:"recent,omitempty"` // requests in the minute before Last
	Failures    int       `json:"failures,omitempty"`
	BrokenUntil time.Time `json:"broken_until,omitzero"`
	Day         dayRecord `json:"day,omitzero"`
}

type repoFetchesRecord struct {
	Repo        string       `json:"repo"`
	Attempts    int          `json:"attempts,omitempty"`
	Next        time.Time    `json:"next,omitzero"`
	Futile      int          `json:"futile,omitempty"` // consecutive checks with a futile fetch
	FutileUntil time.Time    `json:"futile_until,omitzero"`
	Own         dayRecord    `json:"own,omitzero"`       // from servers of maintainers
	Strangers   dayRecord    `json:"strangers,omitzero"` // from servers that only pull requests name
	Lacks       []lackRecord `json:"lacks,omitempty"`
}

type dayRecord struct {
	Since time.Time `json:"since"`
	Bytes int64     `json:"bytes"`
}

type lackRecord struct {
	URL   string    `json:"url"`            // hashed
	IDs   string    `json:"ids,omitempty"`  // hashed; empty: any objects
	Times int       `json:"times,omitzero"` // consecutive failures
	Until time.Time `json:"until"`
}

// worth is false if the record is empty.
func (sv *Records) serverRecord(a graspsync.HostPort, s *server, now time.Time) (r serverRecord, worth bool) {
	r = serverRecord{
		Server: a.String(), Last: saved(s.last), Recent: s.recent, Failures: s.broken.Times, BrokenUntil: saved(s.broken.Until),
		Day: sv.day(&s.usage, now),
	}
	return r, r.Day.Bytes > 0 || now.Before(s.broken.Until.Add(BrokenMax)) || now.Sub(s.last) < time.Minute
}

func (sv *Records) fetchesRecord(ref graspsync.RepoRef, h *repoFetches, now time.Time) (r repoFetchesRecord, worth bool) {
	r = repoFetchesRecord{
		Repo: ref.String(), Attempts: h.attempts.Times, Next: saved(h.attempts.Until), Futile: h.futile.Times, FutileUntil: saved(h.futile.Until),
		Own: sv.day(&h.own, now), Strangers: sv.day(&h.strange, now),
	}
	for u, l := range h.lacks {
		if l.Waits(now) || !l.whatever {
			lr := lackRecord{URL: hex.EncodeToString(u[:]), Times: l.Times, Until: saved(l.Until)}
			if !l.whatever {
				lr.IDs = hex.EncodeToString(l.hash[:])
			}
			r.Lacks = append(r.Lacks, lr)
		}
	}
	slices.SortFunc(r.Lacks, func(a, b lackRecord) int { return b.Until.Compare(a.Until) })
	r.Lacks = r.Lacks[:min(len(r.Lacks), savedLacks)]
	waits := h.attempts.Times > 0 && now.Before(h.attempts.Until.Add(sv.cfg.MaxBackoff))
	lacks := len(r.Lacks) > 0 && now.Before(r.Lacks[0].Until)
	futile := h.futile.Times > 0 && now.Before(h.futile.Until.Add(futileMost)) // kept after its end, because the wait goes on doubling
	return r, waits || lacks || futile || r.Own.Bytes+r.Strangers.Bytes > 0
}

// day charges MaxFetch bytes for a request in flight, because they may have arrived when the
// process ends.
func (sv *Records) day(u *usage, now time.Time) (r dayRecord) {
	if bytes := u.today(now) + int64(u.requests)*sv.cfg.MaxFetch; bytes > 0 {
		r = dayRecord{Since: saved(u.Since), Bytes: bytes}
	}
	return r
}

func (r *serverRecord) read(now time.Time) (a graspsync.HostPort, s *server, err error) {
	u, err := graspsync.ParseCloneURL("https://" + r.Server)
	if err != nil || u.HostPort().String() != r.Server {
		return a, nil, fmt.Errorf("%w: server %s", errRecord, graspsync.Printable(r.Server))
	}
	return u.HostPort(), &server{
		usage: r.Day.usage(now), last: backoff.Within(r.Last, now, 0), recent: r.Recent,
		broken: backoff.Streak{Times: r.Failures, Until: r.BrokenUntil}.Restored(now, BrokenMax),
	}, nil
}

func (r *repoFetchesRecord) read(now time.Time, most time.Duration) (ref graspsync.RepoRef, h *repoFetches, err error) {
	ref, err = graspsync.ParseRepoRef(r.Repo)
	h = &repoFetches{
		attempts: backoff.Streak{Times: r.Attempts, Until: r.Next}.Restored(now, most),
		futile:   backoff.Streak{Times: r.Futile, Until: r.FutileUntil}.Restored(now, futileMost),
		own:      r.Own.usage(now), strange: r.Strangers.usage(now), lacks: make(map[lackKey]lack),
	}
	for _, x := range r.Lacks[:min(len(r.Lacks), savedLacks)] {
		var u lackKey
		l := lack{whatever: x.IDs == ""}
		longest := lackMost
		if l.whatever {
			longest = day
		} else {
			err = errors.Join(err, decodeHex(l.hash[:], x.IDs))
		}
		err = errors.Join(err, decodeHex(u[:], x.URL))
		l.Streak = backoff.Streak{Times: x.Times, Until: x.Until}.Restored(now, longest)
		h.lacks[u] = l
	}
	return ref, h, err
}

func (r dayRecord) usage(now time.Time) usage {
	return usage{Day: limit.Day{Since: backoff.Within(r.Since, now, 0), Units: max(0, r.Bytes)}}
}

// saved removes the monotonic clock reading.
func saved(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return backoff.Saved(t)
}

func decodeHex(to []byte, s string) error {
	if len(s) != hex.EncodedLen(len(to)) {
		return fmt.Errorf("%w: hash of %d digits", errRecord, len(s))
	}
	if _, err := hex.Decode(to, []byte(s)); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	return nil
}

var errRecord = errors.New("not a record of ours")

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}
