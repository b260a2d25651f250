package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/state"
)

func serverAt(t *testing.T, s string) graspsync.CloneURL {
	t.Helper()
	u, err := graspsync.ParseCloneURL(s)
	require.NoError(t, err)
	return u
}

// A time from a disk is believed up to the longest wait, and a day as long as it is not over.
func TestTimesFromADiskAreBelievedSoFar(t *testing.T) {
	now := time.Now()
	require.Zero(t, recalled(now, time.Time{}, time.Hour))
	for after, want := range map[time.Duration]time.Duration{
		-time.Hour: -time.Hour, 0: 0, time.Hour - 1: time.Hour - 1, time.Hour: time.Hour, time.Hour + 1: time.Hour,
	} {
		require.Equal(t, now.Add(want), recalled(now, now.Add(after).Round(0), time.Hour), after)
	}
	require.Nil(t, dayRecord{Since: now, Bytes: 0}.budget(now))
	require.Nil(t, dayRecord{Since: now, Bytes: -1}.budget(now))
	require.Nil(t, dayRecord{Since: now.Add(-day), Bytes: 5}.budget(now))
	require.Equal(t, &dayBudget{since: now.Add(1 - day), bytes: 1}, dayRecord{Since: now.Add(1 - day), Bytes: 1}.budget(now))
	require.Equal(t, &dayBudget{since: now, bytes: 5}, dayRecord{Since: now.Add(time.Hour), Bytes: 5}.budget(now), "not in the future")
	for _, at := range []time.Time{{}, now} {
		require.True(t, saved(at).Equal(at))
		require.Equal(t, saved(at), saved(at).Round(0))
		require.Equal(t, time.UTC, saved(at).Location())
	}
}

// What is kept of a server is worth a record as long as it says anything, to the moment; what
// a crash may cut short counts for all that it can bring.
func TestRecordsOfServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRationed(t, 1).p
		f, now := p.fetches, time.Now()
		u := serverAt(t, "https://a.example/r.git").HostPort()
		for name, c := range map[string]struct {
			s     server
			day   *dayBudget
			worth bool
			bytes int64
		}{
			"nothing":                     {s: server{last: now.Add(-time.Minute)}},
			"asked in the last minute":    {s: server{last: now.Add(1 - time.Minute)}, worth: true},
			"was broken a day ago":        {s: server{brokenUntil: now.Add(-24 * time.Hour)}},
			"was broken within a day":     {s: server{brokenUntil: now.Add(1 - 24*time.Hour)}, worth: true},
			"sent something":              {day: &dayBudget{now.Add(1 - day), 7}, worth: true, bytes: 7},
			"sent something the day ago":  {day: &dayBudget{now.Add(-day), 7}},
			"is asked":                    {s: server{underWay: 2}, worth: true, bytes: 2 * 512 << 20},
			"is asked and sent something": {s: server{underWay: 1}, day: &dayBudget{now.Add(-time.Hour), 7}, worth: true, bytes: 7 + 512<<20},
		} {
			c.s.recent, c.s.failures = 3, 4
			f.servers.servers[u], f.servers.memory.hosts[u] = &c.s, c.day
			r, worth := f.servers.serverRecord(u, now)
			require.Equal(t, c.worth, worth, name)
			since := time.Time{}
			if c.bytes > 0 {
				since = saved(now)
				if c.day != nil {
					since = saved(c.day.since)
				}
			}
			require.Equal(t, serverRecord{
				Server: "a.example:443", Last: saved(c.s.last), Recent: 3, Failures: 4, BrokenUntil: saved(c.s.brokenUntil),
				Day: dayRecord{since, c.bytes},
			}, r, name)
			// and back
			text, err := json.Marshal(r)
			require.NoError(t, err)
			delete(f.servers.servers, u)
			delete(f.servers.memory.hosts, u)
			past, worth, err := f.servers.recallServer(text, now)
			require.NoError(t, err)
			require.Equal(t, c.worth, worth, name)
			want := syncqueue.PastDomain{Domain: u, Last: c.s.last, Recent: 3, Failures: 4, BrokenUntil: c.s.brokenUntil}
			require.True(t, want.Last.Equal(past.Last) && want.BrokenUntil.Equal(past.BrokenUntil), name)
			past.Last, past.BrokenUntil = want.Last, want.BrokenUntil
			require.Equal(t, want, past, name)
			if !worth {
				require.NotContains(t, f.servers.servers, u, name)
				continue
			}
			require.Equal(t, []int{3, 4, 0}, []int{f.servers.servers[u].recent, f.servers.servers[u].failures, f.servers.servers[u].underWay}, name)
			require.EqualValues(t, c.bytes, spent(f.servers.memory.hosts, u, now), name)
		}
		delete(f.servers.servers, u)
		for _, bad := range []string{"", "[]", `{"server":"a.example"}`, `{"server":"A.example:443"}`, `{"server":"x y:443"}`} {
			_, worth, err := f.servers.recallServer([]byte(bad), now)
			require.ErrorIs(t, err, errRecord, bad)
			require.False(t, worth)
		}
		require.Empty(t, f.servers.servers)
	})
}

// The same for a repository.
func TestRecordsOfHunts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRationed(t, 1).p
		f, now := p.fetches, time.Now()
		ref := graspsync.RepoRef{Owner: graspsync.PubKey{7}, Identifier: "x"}
		many := make(map[urlKey]lack)
		for n := range maxLacks + 1 {
			many[urlKey{byte(n)}] = lack{hash: [32]byte{byte(n)}, times: n, until: now.Add(time.Duration(n) * time.Second)}
		}
		for name, c := range map[string]struct {
			h              hunted
			own, strangers *dayBudget
			lacks          map[urlKey]lack
			worth          bool
			kept           int // of the lacks
		}{
			"nothing":                      {h: hunted{next: now.Add(time.Hour)}},
			"waited out":                   {h: hunted{attempts: 1, next: now.Add(-2 * time.Minute)}},
			"waits":                        {h: hunted{attempts: 1, next: now.Add(1 - 2*time.Minute)}, worth: true},
			"in vain, long ago":            {h: hunted{vain: patience{now.Add(-24 * time.Hour), 1}}},
			"in vain":                      {h: hunted{vain: patience{now.Add(1 - 24*time.Hour), 1}}, worth: true},
			"not in vain":                  {h: hunted{vain: patience{now, 0}}},
			"own bytes":                    {own: &dayBudget{now, 1}, worth: true},
			"strangers' bytes":             {strangers: &dayBudget{now, 1}, worth: true},
			"asked":                        {h: hunted{underWay: 1}, worth: true},
			"strangers are asked":          {h: hunted{underWayStrangers: 1}, worth: true},
			"lacked":                       {lacks: map[urlKey]lack{{1}: {until: now, times: 3}}, kept: 1},
			"lacks":                        {lacks: map[urlKey]lack{{1}: {until: now.Add(1), times: 3}}, worth: true, kept: 1},
			"whatever it was asked for":    {lacks: map[urlKey]lack{{1}: {until: now.Add(1), whatever: true}}, worth: true, kept: 1},
			"whatever it was, a while ago": {lacks: map[urlKey]lack{{1}: {until: now, whatever: true}}},
			"many lacks":                   {lacks: many, worth: true, kept: maxLacks},
		} {
			f.servers.hunted[ref], f.servers.memory.lacks[ref], f.servers.memory.size = &c.h, c.lacks, len(c.lacks)
			f.servers.memory.repos[repoDay{ref, false}], f.servers.memory.repos[repoDay{ref, true}] = c.own, c.strangers
			r, worth := f.servers.huntedRecord(ref, now)
			require.Equal(t, c.worth, worth, name)
			require.Len(t, r.Lacks, c.kept, name)
			for i, l := range r.Lacks {
				require.True(t, i == 0 || !l.Until.After(r.Lacks[i-1].Until), "the longest first")
			}
			require.EqualValues(t, c.h.attempts, r.Attempts)
			require.EqualValues(t, c.h.vain.failures, r.Vain)
			text, err := json.Marshal(r)
			require.NoError(t, err)
			delete(f.servers.memory.lacks, ref)
			f.servers.memory.size = 0
			delete(f.servers.memory.repos, repoDay{ref, false})
			delete(f.servers.memory.repos, repoDay{ref, true})
			delete(f.servers.hunted, ref)
			past, worth, err := f.servers.recallHunted(text, now)
			require.NoError(t, err, name)
			require.Equal(t, c.worth, worth, name)
			require.Equal(t, c.h.attempts, past.Attempts, name)
			require.Equal(t, ref, past.Repo)
			require.True(t, past.Next.Equal(recalled(now, c.h.next, 2*time.Minute)), name)
			require.Len(t, f.servers.memory.lacks[ref], c.kept, name)
			for u, l := range f.servers.memory.lacks[ref] {
				was := c.lacks[u]
				require.True(t, l.until.Equal(was.until))
				require.Equal(t, lack{hash: was.hash, whatever: was.whatever, times: was.times}, lack{hash: l.hash, whatever: l.whatever, times: l.times})
			}
			_, there := f.servers.hunted[ref]
			require.Equal(t, worth, there, name)
			for stranger, b := range map[bool]*dayBudget{false: c.own, true: c.strangers} {
				underWay := c.h.underWay
				if stranger {
					underWay = c.h.underWayStrangers
				}
				want := int64(underWay) * (512 << 20)
				if b != nil {
					want += b.bytes
				}
				require.Equal(t, want, spent(f.servers.memory.repos, repoDay{ref, stranger}, now), name)
			}
			delete(f.servers.memory.lacks, ref)
			f.servers.memory.size = 0
			clear(f.servers.memory.repos)
		}
		read := func(r huntedRecord) error {
			r.Repo = ref.String()
			text, err := json.Marshal(r)
			require.NoError(t, err)
			_, _, err = f.servers.recallHunted(text, now)
			return err
		}
		key, hash := "000102030405060708090a0b", fmt.Sprintf("%064x", 1)
		lacks := func(n int) (out []lackRecord) {
			for i := range n {
				out = append(out, lackRecord{URL: fmt.Sprintf("%024x", i), IDs: hash, Times: 1, Until: now.Add(time.Hour)})
			}
			return out
		}
		require.NoError(t, read(huntedRecord{Lacks: lacks(maxLacks)}))
		require.ErrorIs(t, read(huntedRecord{Lacks: lacks(maxLacks + 1)}), errRecord)
		for _, l := range []lackRecord{{URL: "00", IDs: hash}, {URL: key, IDs: "00"}, {URL: key + "0"}, {URL: "x" + key[1:]}} {
			require.ErrorIs(t, read(huntedRecord{Lacks: []lackRecord{l}}), errRecord)
		}
		for times, want := range map[int]int{-1: 0, 0: 0, 999: 999, 1000: 1000, 1001: 1000} {
			later := now.Add(100 * 24 * time.Hour)
			require.NoError(t, read(huntedRecord{Vain: times, VainUntil: later, Next: later, Attempts: 1, Lacks: []lackRecord{
				{URL: key, IDs: hash, Times: times, Until: later}, {URL: fmt.Sprintf("%024x", 5), Times: times, Until: later},
			}}))
			h := f.servers.hunted[ref]
			require.Equal(t, patience{now.Add(24 * time.Hour), want}, h.vain, "for a day at most")
			require.Equal(t, now.Add(2*time.Minute), h.next)
			var u urlKey
			require.NoError(t, decodeHex(u[:], key))
			require.Equal(t, lack{hash: [32]byte{31: 1}, times: want, until: now.Add(10 * time.Minute)}, f.servers.memory.lacks[ref][u])
			require.NoError(t, decodeHex(u[:], fmt.Sprintf("%024x", 5)))
			require.Equal(t, lack{whatever: true, times: want, until: now.Add(24 * time.Hour)}, f.servers.memory.lacks[ref][u])
		}
		_, _, err := f.servers.recallHunted([]byte(`{"repo":"x"}`), now)
		require.ErrorIs(t, err, errRecord)
		_, _, err = f.servers.recallHunted([]byte(`{`), now)
		require.ErrorIs(t, err, errRecord)
	})
}

// brokenDisk can't be written under a prefix, until it is mended.
type brokenDisk struct {
	state.Store
	prefix string
	mended atomic.Bool
}

func (d *brokenDisk) fails(keys ...string) error {
	if !d.mended.Load() && slices.ContainsFunc(keys, func(key string) bool { return strings.HasPrefix(key, d.prefix) }) {
		return errScales
	}
	return nil
}

func (d *brokenDisk) Put(ctx context.Context, records ...state.Record) error {
	for _, r := range records {
		if err := d.fails(r.Key); err != nil {
			return err
		}
	}
	return d.Store.Put(ctx, records...)
}

func (d *brokenDisk) Delete(ctx context.Context, keys ...string) error {
	if err := d.fails(keys...); err != nil {
		return err
	}
	return d.Store.Delete(ctx, keys...)
}

// onDisk is what is on the disk of servers and of hunting.
func (sv *servers) onDisk(t *testing.T) map[string]string {
	t.Helper()
	out := make(map[string]string)
	for _, prefix := range []string{keyServer, keyHunted} {
		require.NoError(t, readEach(t.Context(), sv.keep, prefix, func(key string, value []byte) error {
			out[prefix+key] = string(value)
			return nil
		}))
	}
	return out
}

// A request is noted when it begins, before it is made, and when it ends, of whoever's servers
// it is; what is learned is on the disk a second later.
func TestWhatIsNotedOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newRationed(t, 1).p
		f, u := p.fetches, serverAt(t, "https://a.example/r.git")
		ref := graspsync.RepoRef{Owner: graspsync.PubKey{7}, Identifier: "x"}
		end := f.servers.start(t.Context())
		defer end()
		onDisk := func() (a, b string) {
			all := f.servers.onDisk(t)
			return all[serverKey(u.HostPort())], all[huntedKey(ref)]
		}
		// soon says of what something else is on the disk a second later, and not before.
		soon := func() (ofServer, ofHunted bool) {
			t.Helper()
			wasA, wasB := onDisk()
			time.Sleep(time.Second - 1)
			synctest.Wait()
			a, b := onDisk()
			require.Equal(t, []string{wasA, wasB}, []string{a, b})
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			a, b = onDisk()
			return a != wasA, b != wasB
		}
		changes := func(wantA, wantB bool, why string) {
			t.Helper()
			a, b := soon()
			require.Equal(t, [2]bool{wantA, wantB}, [2]bool{a, b}, why)
		}
		f.servers.found(u.HostPort(), 1, time.Now())
		changes(false, false, "nobody asked it")
		f.servers.started(syncqueue.Fetch{Repo: ref, URL: u, Attempt: 3, Recent: 2, Wait: time.Minute})
		s, h := f.servers.servers[u.HostPort()], f.servers.hunted[ref]
		require.Equal(t, server{last: time.Now(), recent: 2}, *s)
		require.Equal(t, hunted{attempts: 3, next: time.Now().Add(time.Minute)}, *h)
		changes(false, false, "it is written down when it is made")
		for _, stranger := range []bool{false, true} {
			end, err := f.servers.begin(t.Context(), question{repo: ref, from: u, stranger: stranger}, time.Hour)
			require.NoError(t, err)
			a, b := onDisk()
			whole := fmt.Sprintf(`"bytes":%d`, 512<<20)
			require.Contains(t, a, whole, "it is on the disk")
			require.Contains(t, b, whole)
			require.Equal(t, stranger, strings.Contains(b, `"strangers":`))
			require.Equal(t, 1, s.underWay)
			require.Equal(t, map[bool][2]int{false: {1, 0}, true: {0, 1}}[stranger], [2]int{h.underWay, h.underWayStrangers})
			require.True(t, s.inUse() && h.inUse())
			time.Sleep(time.Second)
			end()
			require.False(t, s.inUse() || h.inUse())
			require.Zero(t, s.underWay+h.underWay+h.underWayStrangers)
			require.Equal(t, time.Now().Add(time.Hour), h.next)
			changes(true, true, "soon")
			a, b = onDisk()
			require.NotContains(t, a+b, whole)
		}
		h.attempts = 0
		done, err := f.servers.begin(t.Context(), question{repo: ref, from: u}, 2*time.Hour)
		require.NoError(t, err)
		was := h.next
		done()
		require.Equal(t, was, h.next, "it waits for nothing")
		changes(true, true, "soon")
		require.NotContains(t, f.servers.hunted, ref, "there is nothing to remember")
		_, b := onDisk()
		require.Empty(t, b)

		until := time.Now().Add(time.Hour)
		f.servers.found(u.HostPort(), 2, until)
		changes(true, false, "it is of no use")
		f.servers.found(u.HostPort(), 2, until)
		changes(false, false, "that is known")
		f.servers.found(u.HostPort(), 3, until)
		f.servers.found(u.HostPort(), 3, until.Add(1))
		changes(true, false, "for longer")
		require.Equal(t, 3, s.failures)
		require.Equal(t, until.Add(1), s.brokenUntil)

		f.servers.inVain(ref, patience{until, 4})
		h = f.servers.hunted[ref]
		changes(false, true, "it was in vain")
		require.Equal(t, patience{until, 4}, h.vain)
		f.servers.memory.put(ref, urlKey{1}, lack{until: until})
		h.attempts = 5
		f.servers.rest(ref)
		require.Equal(t, hunted{}, *h)
		require.Empty(t, f.servers.memory.lacks)
		changes(false, true, "it lacks nothing")
		_, b = onDisk()
		require.Empty(t, b)
		f.servers.rest(graspsync.RepoRef{Identifier: "none"})
		changes(false, false, "of which nothing is known")
	})
}

// A request that can't be noted is not made, and is none; that somebody else is asked is noted
// again later.
func TestRequestThatCannotBeNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 1)
		f, u := w.p.fetches, serverAt(t, "https://a.example/r.git")
		ref := graspsync.RepoRef{Owner: graspsync.PubKey{7}, Identifier: "x"}
		disk := &brokenDisk{Store: f.servers.keep, prefix: keyServer}
		f.servers = newServers(f.cfg, f.report, disk)
		end := f.servers.start(t.Context())
		defer end()
		f.servers.started(syncqueue.Fetch{Repo: ref, URL: u, Attempt: 3, Recent: 2, Wait: time.Minute})
		_, err := f.servers.begin(t.Context(), question{repo: ref, from: u}, time.Hour)
		require.ErrorIs(t, err, errScales)
		over := errors.New("it is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		_, err = f.servers.begin(ctx, question{repo: ref, from: u}, time.Hour)
		require.ErrorIs(t, err, over)
		s, h := f.servers.servers[u.HostPort()], f.servers.hunted[ref]
		require.False(t, s.inUse() || h.inUse())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Empty(t, f.servers.onDisk(t), "both records are one batch")
		disk.mended.Store(true)
		f.servers.found(u.HostPort(), 1, time.Now().Add(time.Hour))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, f.servers.onDisk(t), 2)
	})
}

// However long the disk fails and however many servers are heard of: what is kept of them in
// memory has its bound; in the end the disk has the same.
func TestServersAreBoundedWhileTheDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRationed(t, 1)
		cfg := *w.p.cfg
		cfg.fixed.MaxKept = 5
		disk := &brokenDisk{Store: w.p.servers.keep, prefix: "purgatory/"}
		sv := newServers(&cfg, newReport(&cfg), disk)
		end := sv.start(t.Context())
		until := time.Now().Add(24 * time.Hour)
		for i := range 100 {
			u := serverAt(t, fmt.Sprintf("https://a%d.example/r.git", i))
			ref := graspsync.RepoRef{Owner: graspsync.PubKey{7}, Identifier: fmt.Sprint(i)}
			sv.started(syncqueue.Fetch{Repo: ref, URL: u, Attempt: 1, Wait: time.Minute})
			_, err := sv.begin(t.Context(), question{repo: ref, from: u}, time.Hour)
			require.ErrorIs(t, err, errScales)
			sv.found(u.HostPort(), 1, until)
			sv.inVain(ref, patience{until, 1})
			require.LessOrEqual(t, len(sv.servers), 5)
			require.LessOrEqual(t, len(sv.hunted), 5)
			time.Sleep(time.Second)
		}
		dropped, _ := sv.report.byName()
		require.EqualValues(t, 2*95, dropped["kept"])
		require.Empty(t, sv.onDisk(t))
		disk.mended.Store(true)
		end()
		all := sv.onDisk(t)
		require.Len(t, all, len(sv.servers)+len(sv.hunted))
		for a := range sv.servers {
			require.Contains(t, all, serverKey(a))
		}
		for ref := range sv.hunted {
			require.Contains(t, all, huntedKey(ref))
		}
	})
}

// Delays double up to the longest.
func TestDoubled(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 3, 1: 3, 2: 6, 3: 12, 4: 20, 5: 20, 1000: 20} {
		require.Equal(t, want, backoff.Doubled(3, 20, n), n)
	}
	require.EqualValues(t, 12, backoff.Doubled(3, 12, 3))
	require.EqualValues(t, 2, backoff.Doubled(3, 2, 1))
}

// Each field of a configuration that bounds anything must be more than nothing, and each error
// names its field.
func TestEachFieldIsChecked(t *testing.T) {
	good := Config{}.withDefaults()
	require.NoError(t, good.validate())
	for name, spoil := range map[string]func(c *Config){
		"Hold": func(c *Config) { c.Times.Hold = 0 }, "MaxHold": func(c *Config) { c.fixed.MaxHold = 0 }, "SoftExpiry": func(c *Config) { c.fixed.SoftExpiry = 0 },
		"Remember": func(c *Config) { c.fixed.Remember = 0 },
		"Departed": func(c *Config) { c.Times.Departed = 0 }, "UserDelay": func(c *Config) { c.fixed.UserDelay = 0 },
		"SyncDelay": func(c *Config) { c.fixed.SyncDelay = 0 }, "Backoff": func(c *Config) { c.Times.Backoff = 0 },
		"MaxBackoff": func(c *Config) { c.fixed.MaxBackoff = 0 }, "Check": func(c *Config) { c.fixed.Check = 0 }, "Grace": func(c *Config) { c.Times.Grace = 0 },
		"Timeout": func(c *Config) { c.fixed.Timeout = 0 }, "FetchTimeout": func(c *Config) { c.fixed.FetchTimeout = 0 },
		"MaxEntries": func(c *Config) { c.Limits.MaxEntries = 0 }, "MaxBytes": func(c *Config) { c.Limits.MaxBytes = 0 },
		"MaxPerAuthor": func(c *Config) { c.fixed.MaxPerAuthor = 0 }, "MaxRemembered": func(c *Config) { c.fixed.MaxRemembered = 0 },
		"MaxKept": func(c *Config) { c.fixed.MaxKept = 0 }, "MaxClones": func(c *Config) { c.fixed.MaxClones = 0 },
		"MaxHunts": func(c *Config) { c.Limits.MaxHunts = 0 }, "MaxLooks": func(c *Config) { c.fixed.MaxLooks = 0 },
		"MaxRepositories": func(c *Config) { c.fixed.MaxRepositories = 0 }, "MaxRepoDay": func(c *Config) { c.Limits.MaxRepoDay = 0 },
		"MaxHostDay": func(c *Config) { c.Limits.MaxHostDay = 0 }, "MaxFetch": func(c *Config) { c.fixed.MaxFetch = 0 },
		"MaxPullBytes": func(c *Config) { c.Limits.MaxPullBytes = 0 },
		"DomainLimit":  func(c *Config) { c.Limits.DomainLimit.Concurrent = 0 },
		"DomainLimits of a.example:443": func(c *Config) {
			c.Limits.DomainLimits = map[graspsync.HostPort]Limit{serverAt(t, "https://a.example").HostPort(): {Concurrent: 1}}
		},
	} {
		c := good
		spoil(&c)
		require.ErrorContains(t, c.validate(), name+" is ")
	}
	for _, set := range []func(c *Config, d time.Duration){
		func(c *Config, d time.Duration) { c.fixed.MaxHold = c.Times.Hold + d },
	} {
		c := good
		set(&c, 0)
		require.NoError(t, c.validate(), "it may be as long")
		set(&c, -1)
		require.ErrorContains(t, c.validate(), "less than")
	}
}
