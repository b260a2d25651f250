package ownfeed

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/sync/wire"
)

// told is a feed that records its results.
type told struct {
	feed *Feed
	now  time.Time
}

// tellAll returns the results of one call and the next deadline.
func (o *told) tellAll(r Result) (out []string) {
	for _, q := range r.Send {
		line := map[wire.RequestType]string{wire.TypeReq: "REQ ", wire.TypeClose: "CLOSE "}[q.Type] + q.Sub
		for _, f := range q.Filters {
			line += fmt.Sprintf(" limit %d", f.Limit)
			if f.LimitZero {
				line += " zero"
			}
			if !slices.Equal(f.Kinds, Kinds()) {
				line += fmt.Sprint(" kinds ", f.Kinds)
			}
			if f.Since != nil {
				line += " since " + seconds(*f.Since)
			}
			if f.Until != nil {
				line += " until " + seconds(*f.Until)
			}
		}
		out = append(out, line)
	}
	if !r.Event.IsZero() {
		id, err := strconv.ParseInt(r.Event.ID.String(), 16, 64)
		out = append(out, fmt.Sprint("event ", id, map[bool]string{true: " live"}[r.Live], map[bool]string{true: " odd"}[err != nil]))
	}
	if r.Read {
		out = append(out, fmt.Sprintf("read %d events %d gaps", r.Events, r.Gaps))
	} else if r.Events != 0 || r.Gaps != 0 || r.Live && r.Event.IsZero() {
		out = append(out, fmt.Sprintf("odd %+v", r))
	}
	if r.Err != nil {
		out = append(out, "error "+r.Err.Error())
	}
	at, ok := o.feed.NextWake()
	wake := "never"
	if ok {
		wake = at.Sub(start).String()
	}
	if !ok && !at.IsZero() {
		wake = "odd"
	}
	return append(out, fmt.Sprintf("wake %s complete %v spans %d", wake, o.feed.Complete(), len(o.feed.spans)))
}

// seconds returns a time in seconds since the start. Times of a feed begin at 1.
func seconds(t nostr.Timestamp) string {
	if int64(t) < start.Unix()/2 {
		return fmt.Sprint(int64(t), " of 1970")
	}
	return strconv.FormatInt(int64(t)-start.Unix(), 10)
}

// play runs one line of a script:
//
//	30s                      time passes
//	connected
//	lost [never|30s]         time since the last sign of life
//	event SUB N [SECONDS [KIND]]  an event, created SECONDS after the start
//	events SUB N COUNT SECONDS    COUNT events of one second
//	odd SUB                  an event without an id
//	eose SUB [finish|more]
//	closed SUB REASON
//	notice
//	tick
func (o *told) play(words []string) ([]string, error) {
	number := func(i, otherwise int) int {
		if i >= len(words) {
			return otherwise
		}
		n, err := strconv.Atoi(words[i])
		if err != nil {
			panic(err)
		}
		return n
	}
	receive := func(m wire.Message) []string { return o.tellAll(o.feed.Receive(o.now, m)) }
	if d, err := time.ParseDuration(words[0]); err == nil {
		o.now = o.now.Add(d)
		return nil, nil
	}
	switch words[0] {
	case "connected":
		return o.tellAll(o.feed.Connected(o.now)), nil
	case "lost":
		alive := o.now
		if len(words) > 1 && words[1] == "never" {
			alive = time.Time{}
		} else if len(words) > 1 {
			ago, err := time.ParseDuration(words[1])
			if err != nil {
				return nil, err
			}
			alive = o.now.Add(-ago)
		}
		o.feed.Lost(alive)
		return o.tellAll(Result{}), nil
	case "event":
		at := start.Add(time.Duration(number(3, 0)) * time.Second)
		return receive(msg(words[1], event(number(2, 0)-1, number(4, 1621), at))), nil
	case "events":
		last := []string(nil)
		for i := range number(3, 0) {
			last = receive(msg(words[1], event(number(2, 0)+i-1, 1621, start.Add(time.Duration(number(4, 0))*time.Second))))
		}
		return last, nil
	case "eose":
		m := eose(words[1])
		if len(words) > 2 {
			m.Hint = map[string]wire.Hint{"finish": wire.HintFinish, "more": wire.HintMore}[words[2]]
		}
		return receive(m), nil
	case "closed":
		return receive(wire.Message{Type: wire.TypeClosed, Sub: words[1], Text: words[2]}), nil
	case "notice":
		return receive(wire.Message{Type: wire.TypeNotice, Text: "x"}), nil
	case "tick":
		return o.tellAll(o.feed.Tick(o.now)), nil
	}
	return nil, errors.New("no such line")
}

func TestScripts(t *testing.T) {
	goldentest.Play(t, func(*testing.T) goldentest.Player {
		cfg := defaults()
		cfg.PageLimit, cfg.MaxPage = 3, 12
		return (&told{feed: New(cfg), now: start}).play
	})
}
