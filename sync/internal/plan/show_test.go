package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"
)

// show writes an effect in one line.
func show(e Effect) string {
	switch e := e.(type) {
	case Dial:
		return fmt.Sprintf("dial %s @%d", short(e.Relay), e.Epoch)
	case Hangup:
		return fmt.Sprintf("hangup %s @%d", short(e.Relay), e.Epoch)
	case Forget:
		return "forget " + short(e.Relay)
	case OpenLive:
		return fmt.Sprintf("live %s l%d %s", short(e.Relay), e.Live, showFilters(e.Filters))
	case CloseLive:
		return fmt.Sprintf("unlive %s l%d", short(e.Relay), e.Live)
	case Start:
		kind := [...]string{"history", "daily", "recent", "deletions", "named", "audit"}[e.Batch.Kind]
		var fs []string
		for _, q := range e.Batch.Queries {
			f := showFilter(q.Filter)
			if q.Until != 0 {
				f += "<=" + clock(time.Unix(q.Until, 0))
			}
			if q.NoNegentropy {
				f += "!"
			}
			fs = append(fs, f)
		}
		return fmt.Sprintf("start %s b%d %s of %d: %s, by %s",
			short(e.Relay), e.Batch.ID, kind, e.Batch.Items, strings.Join(fs, " "), clock(e.Batch.Deadline))
	case Cancel:
		return fmt.Sprintf("cancel %s b%d", short(e.Relay), e.Batch)
	case Reset:
		if e.Daily {
			return "reset " + short(e.Relay) + " daily"
		}
		return "reset " + short(e.Relay)
	case Dropped:
		return fmt.Sprintf("dropped %s %d", e.Reason, e.Count)
	}
	return fmt.Sprintf("%#v", e)
}

func showFilters(fs []nostr.Filter) string {
	out := make([]string, len(fs))
	for i, f := range fs {
		out[i] = showFilter(f)
	}
	return strings.Join(out, " ")
}

// showFilter returns the role of a filter and its number of values.
func showFilter(f nostr.Filter) string {
	var s string
	switch r := roleOf(f); {
	case len(f.IDs) > 0:
		s = fmt.Sprintf("ids(%d)", len(f.IDs))
	case len(f.Authors) > 0:
		s = fmt.Sprintf("authors(%d)", len(f.Authors))
	case r.tag == "" && len(f.Kinds) == 2:
		s = "layer1"
	case r.deletion:
		s = fmt.Sprintf("5#%s(%d)", r.tag, len(f.Tags[r.tag]))
	case r.tag == "":
		s = fmt.Sprintf("kinds(%d)", len(f.Kinds))
	default:
		s = fmt.Sprintf("#%s(%d)", r.tag, len(f.Tags[r.tag]))
	}
	if f.Since != nil {
		s += ">=" + clock(f.Since.Time())
	}
	if f.Until != nil {
		s += "<=" + clock(f.Until.Time())
	}
	return s
}
