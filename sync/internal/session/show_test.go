package session

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// show writes an action as one line.
func show(a Action) string {
	switch a := a.(type) {
	case Send:
		return showRequest(a.Request)
	case Deliver:
		out := fmt.Sprintf("deliver %d", number(a.Event.ID))
		if a.Batch != 0 {
			out += fmt.Sprintf(" of b%d", a.Batch)
		}
		if a.Gap {
			out += ", missed live"
		}
		return out
	case LoadSet:
		return fmt.Sprintf("load q%d", a.Query)
	case Missing:
		return fmt.Sprintf("missing q%d %s", a.Query, numbers(a.IDs))
	case Done:
		result := [...]string{"complete", "gaps", "failed", "refused"}[a.Result]
		r := a.Report
		out := fmt.Sprintf("done b%d %s %s %s events=%d pages=%d size=%d", a.Batch, result, cursors(a.Cursors), r.Method, r.Events, r.Pages, r.PageSize)
		if r.Missing > 0 || r.Seconds > 0 {
			out += fmt.Sprintf(" missing=%d seconds=%d", r.Missing, r.Seconds)
		}
		if len(r.Unserved) > 0 {
			out += " unserved " + numbers(r.Unserved)
		}
		if r.Late {
			out += " late"
		}
		if r.Err != "" {
			out += fmt.Sprintf(" %q", r.Err)
		}
		return out
	case LiveClosed:
		return fmt.Sprintf("live l%d closed (%s): %s", a.Live, a.Why, a.Reason)
	case RateLimited:
		return fmt.Sprintf("rate limited until %s: %s", clock(a.Until), a.Reason)
	case Learned:
		return fmt.Sprintf("learned %s %d: %s", a.Kind, a.Value, a.Reason)
	case ExcludeValue:
		return fmt.Sprintf("set aside #%s %s", a.Tag, a.Value.Text)
	case Authenticate:
		return "authenticate " + a.Challenge
	case Notice:
		return "notice: " + a.Text
	case Strike:
		return fmt.Sprintf("strike: %s, last=%t", a.Reason, a.Last)
	}
	return fmt.Sprintf("%#v", a)
}

func numbers(ids []graspsync.EventID) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = strconv.Itoa(number(id))
	}
	return strings.Join(out, ",")
}

func showRequest(r wire.Request) string {
	name := map[wire.RequestType]string{
		wire.TypeReq: "REQ", wire.TypeClose: "CLOSE", wire.TypeNegOpen: "NEG-OPEN",
		wire.TypeNegSend: "NEG-MSG", wire.TypeNegClose: "NEG-CLOSE", wire.TypeAnswer: "AUTH",
	}[r.Type]
	out := strings.TrimSpace(name + " " + r.Sub)
	for _, f := range r.Filters {
		switch {
		case f.IDs != nil:
			var ids []graspsync.EventID
			for _, s := range f.IDs {
				id, _ := graspsync.ParseEventID(s)
				ids = append(ids, id)
			}
			out += " ids " + numbers(ids)
		default:
			for _, tag := range slices.Sorted(maps.Keys(f.Tags)) {
				out += " #" + tag + " " + strings.Join(f.Tags[tag], ",")
			}
		}
		switch {
		case slices.Equal(f.Kinds, filters.Kinds()), slices.Equal(f.Kinds, filters.RelatedKinds()):
			out += fmt.Sprintf(" %d kinds", len(f.Kinds))
		case slices.Equal(f.Kinds, filters.WithoutNotes(nostr.Filter{}).Kinds):
			out += fmt.Sprintf(" %d kinds, no notes", len(f.Kinds))
		case f.Kinds != nil:
			out += fmt.Sprint(" kinds ", f.Kinds)
		}
		if f.Since != nil {
			out += " since " + clock(f.Since.Time())
		}
		if f.Until != nil {
			out += " until " + clock(f.Until.Time())
		}
		if f.LimitZero {
			out += " live"
		} else if f.Limit > 0 {
			out += fmt.Sprintf(" limit %d", f.Limit)
		}
	}
	return out
}

func clock(t time.Time) string { return t.Sub(start).String() }

func cursors(cs []plan.Cursor) string {
	out := make([]string, len(cs))
	for i, c := range cs {
		switch c {
		case plan.CursorStart:
			out[i] = "-"
		case plan.CursorDone:
			out[i] = "done"
		default:
			out[i] = clock(time.Unix(int64(c), 0))
		}
	}
	return "[" + strings.Join(out, " ") + "]"
}
