package purgatory

import (
	"context"
	"errors"
	"time"

	"github.com/graspsync/graspsync"
)

// trim drops what is not in use where there is more than most.
func trim[K comparable, B book](f *fetches, books map[K]B, key func(K) string, most int) {
	if len(books) <= most {
		return
	}
	for k, b := range books {
		if b.inUse() {
			continue
		}
		delete(books, k)
		f.gone = append(f.gone, key(k))
		f.p.stats.drop("kept")
		f.ring()
		if len(books) <= most {
			return
		}
	}
}

// flush puts everything on the disk that is not there as it is now.
func (f *fetches) flush(ctx context.Context) error {
	f.mu.Lock()
	servers, repos, gone := dirty(f.servers), dirty(f.hunted), f.gone
	f.gone = nil
	f.mu.Unlock()
	var errs []error
	for _, key := range gone { // should that fail, the next start does it
		errs = append(errs, f.p.keep.drop(ctx, key))
	}
	for _, a := range servers {
		errs = append(errs, f.keepServer(ctx, a))
	}
	for _, ref := range repos {
		errs = append(errs, f.keepHunted(ctx, ref))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	trim(f, f.servers, serverKey, f.p.cfg.fixed.MaxKept) // many may have been in use at once
	trim(f, f.hunted, huntedKey, f.p.cfg.fixed.MaxKept)
	return errors.Join(errs...)
}

func dirty[K comparable, B book](books map[K]B) (out []K) {
	for k, b := range books {
		if b.versions().dirty() {
			out = append(out, k)
		}
	}
	return out
}

// sweep has flush drop what says nothing any more.
func (f *fetches) sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for a, s := range f.servers {
		if _, worth := f.serverRecord(a, now); !worth {
			s.version.now++
		}
	}
	for ref, h := range f.hunted {
		if _, worth := f.huntedRecord(ref, now); !worth {
			h.version.now++
		}
	}
}

// ring has runKeeping know that something is not on the disk.
func (f *fetches) ring() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

const (
	keepDelay = time.Second     // in which changes are gathered
	keepRetry = time.Minute     // after a failure
	keepSweep = time.Hour       // between two looks at what may go
	lastWords = 2 * time.Second // at the end
)

// runKeeping has what was learned on the disk soon, many changes at once.
func (f *fetches) runKeeping(ctx context.Context) {
	sweep := time.NewTicker(keepSweep)
	defer sweep.Stop()
	for {
		wait := keepDelay
		select {
		case <-f.changed:
		case <-sweep.C:
			f.sweep()
		case <-ctx.Done():
			return
		}
		for {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			err := f.flush(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			f.p.cfg.Logger.Warn("what was learned of servers could not be kept", keyError, graspsync.Printable(err.Error()))
			wait = keepRetry
		}
	}
}

// keepLast is flush when nothing happens any more.
func (f *fetches) keepLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := f.flush(ctx); err != nil {
		f.p.cfg.Logger.Warn("what was learned of servers could not be kept", keyError, graspsync.Printable(err.Error()))
	}
}
