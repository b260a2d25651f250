package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

const (
	maxRows  = 20_000 // the newest are listed
	maxName  = 100    // bytes
	maxLine  = 200    // bytes of a description
	leastAge = 5 * time.Second
	// timesRead times the time of reading is the minimum age of the list.
	timesRead = 50
)

type row struct {
	Ref        graspsync.RepoRef
	Name, Text string
	Path       string    // below the front page
	Changed    time.Time // of its newest announcement or state by its owner
	words      string    // lower-case text that a search compares
}

// list is the hosted repositories at the last reading.
type list struct {
	cfg Config

	mu sync.Mutex // held while the list is read
	// guarded by mu
	last []row
	next time.Time // of the next reading
}

// rows returns the last changed first, with an error those of the last reading.
func (l *list) rows(ctx context.Context) ([]row, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.next) {
		return l.last, nil
	}
	rows, err := l.read(context.WithoutCancel(ctx), now)
	if err == nil {
		l.last = rows
	}
	l.next = time.Now().Add(max(leastAge, timesRead*time.Since(now)))
	return l.last, err
}

func (l *list) read(ctx context.Context, now time.Time) ([]row, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	var rows []row
	changed := make(map[graspsync.RepoRef]time.Time)
	for e, err := range l.cfg.Store.Events(ctx, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}}) {
		if err != nil {
			return nil, fmt.Errorf("reading announcements: %w", err)
		}
		at := time.Unix(int64(e.CreatedAt), 0)
		if at.After(now) {
			at = now
		}
		ref := graspsync.RepoRef{Owner: e.PubKey, Identifier: e.Event.Tags.GetD()}
		if at.After(changed[ref]) {
			changed[ref] = at
		}
		if e.Kind != graspsync.KindAnnouncement {
			continue
		}
		if a, err := nip34.ParseAnnouncement(e); err == nil && l.cfg.Identity.Lists(a) && !l.cfg.Blocks(a.Ref) {
			rows = append(rows, newRow(a))
		}
	}
	for i := range rows {
		rows[i].Changed = changed[rows[i].Ref]
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(b.Changed.Compare(a.Changed), a.Ref.Compare(b.Ref)) })
	return slices.Clip(rows[:min(len(rows), maxRows)]), nil
}

func newRow(a *nip34.Announcement) row {
	owner := nip34.NPub(a.Ref.Owner)
	r := row{
		Ref: a.Ref, Name: graspsync.PrintableAtMost(cmp.Or(strings.TrimSpace(a.Name), a.Ref.Identifier), maxName),
		Text: graspsync.PrintableAtMost(strings.Join(strings.Fields(graspsync.Clip(described(a), 4*maxLine)), " "), maxLine),
		Path: owner + "/" + url.PathEscape(a.Ref.Identifier) + ".git",
	}
	r.words = strings.ToLower(r.Name + "\n" + a.Ref.Identifier + "\n" + owner + "\n" + r.Text)
	return r
}
