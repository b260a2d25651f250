package filestate

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/graspsync/graspsync/state"
)

const (
	groupCount = 256     // changes that share an fsync
	groupBytes = 8 << 20 // after so many no more join
)

// write is the writer: one goroutine that makes groups of changes durable until the
// store is closed and the queue empty.
func (s *Store) write() {
	defer close(s.ended)
	for {
		group := s.next()
		if len(group) == 0 {
			return
		}
		err := s.commit(group)
		if err != nil {
			s.config.Logger.Error("writing the state log failed", "writes", len(group), "error", err)
		}
		s.settle(group, err)
	}
}

// next waits for changes; none means that there will be no more.
func (s *Store) next() []*request {
	for {
		queued, closed := s.queued()
		if queued > 0 {
			if s.config.SyncDelay > 0 && !closed {
				s.gather()
			}
			if group := s.take(); len(group) > 0 {
				return group
			}
			continue // they were withdrawn
		}
		if closed {
			return nil
		}
		<-s.wake
	}
}

// gather gives others the time to join.
func (s *Store) gather() {
	timer := time.NewTimer(s.config.SyncDelay)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-s.wake:
			if n, closed := s.queued(); n >= groupCount || closed {
				return
			}
		}
	}
}

func (s *Store) queued() (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue), s.closed
}

func (s *Store) take() []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(s.queue) && n < groupCount && size < groupBytes {
		size += s.queue[n].size()
		n++
	}
	group := s.queue[:n:n]
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return group
}

// settle has what was written be seen, and tells who waits.
func (s *Store) settle(group []*request, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.stats.Writes += uint64(len(group))
	} else {
		s.stats.Failures++
	}
	for _, r := range group {
		s.release(r)
		if r.err = err; err == nil {
			s.set(r.record)
		}
		close(r.done)
	}
}

// set changes entries. The caller holds mu.
func (s *Store) set(r record) {
	s.bytes -= footprint(r.key, s.entries)
	if r.kind == remove {
		delete(s.entries, r.key)
		return
	}
	s.entries[r.key] = entry{value: r.value, version: r.version}
	s.bytes += footprint(r.key, s.entries)
}

// commit makes a group durable, in the log as it is or in a new one.
func (s *Store) commit(group []*request) error {
	s.mu.Lock()
	live := fileHeadSize + s.bytes + headSize*int64(len(s.entries))
	last := s.last
	s.mu.Unlock()
	defer s.count()

	if s.log.usable() && !s.log.bloated(live) {
		return s.log.append(group)
	}
	err := s.log.rewrite(s.records(group), last)
	if err != nil && s.log.usable() { // the old one is as good as it was
		s.config.Logger.Warn("state log could not be compacted", "error", err)
		err = s.log.append(group)
	}
	return err
}

// records are all that there is when group is written: what the new log will hold.
// Only the writer, who calls it, changes entries.
func (s *Store) records(group []*request) []record {
	changed := make(map[string]struct{}, len(group))
	out := make([]record, 0, len(s.entries)+len(group))
	for _, r := range group {
		changed[r.key] = struct{}{}
		if r.kind == put {
			out = append(out, r.record)
		}
	}
	for key, e := range s.entries {
		if _, ok := changed[key]; !ok {
			out = append(out, record{version: e.version, kind: put, key: key, value: e.value})
		}
	}
	return out
}

// count shows what the log did.
func (s *Store) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.File, s.stats.Syncs, s.stats.Rewrites = s.log.size, s.log.syncs, s.log.rewrites
}

// load reads the log of a folder; there may be none.
func load(f folder) (contents, error) {
	in, size, err := f.Open(logName)
	if errors.Is(err, fs.ErrNotExist) {
		return contents{entries: make(map[string]entry), last: state.Absent}, nil
	}
	if err != nil {
		return contents{}, fmt.Errorf("opening the log: %w", err)
	}
	defer in.Close() //nolint:errcheck // only read
	return read(in, size)
}
