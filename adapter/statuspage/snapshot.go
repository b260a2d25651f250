package statuspage

import (
	"time"

	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

const snapshotPeriod = time.Second

type snapshot struct {
	at   time.Time
	sync relaysync.Status
	git  *purgatory.Status // nil: none
	left time.Duration     // until all git data is here; 0: unknown
}

func (p *Page) snapshot(now time.Time) *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && now.Sub(p.last.at) < snapshotPeriod && !now.Before(p.last.at) {
		return p.last
	}
	s := &snapshot{at: now, sync: p.cfg.Sync.Status()}
	if p.cfg.Purgatory != nil {
		git := p.cfg.Purgatory.Status()
		s.git = &git
	}
	s.left = p.pace.Left(now, s.sync.Git.Missing)
	p.last = s
	return s
}
