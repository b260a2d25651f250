package relaytest

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync/sync/wire"
)

// maxUnread is the number of unread answers at which Send blocks.
const maxUnread = 256

type frame struct {
	msg  wire.Message
	text []byte // nil until msg is encoded
	// negError sends NEG-ERROR instead of NEG-ERR.
	negError bool
	// cut ends the connection instead of sending a message.
	cut bool
	// sent is called with the relay's lock held when the message is delivered.
	sent func()
}

// answer is a sequence of frames: frames first, then the results of more until it returns none.
type answer struct {
	sub    string // subscription id, or ""
	frames []frame
	more   func() []frame // may be nil; called with the relay's lock held
	due    time.Time      // time of the next frame
	gap    time.Duration  // between two frames
	live   bool           // it is a live event
	first  bool           // first answer with this live event
	last   int            // remaining frames, if > 0
}

func (a *answer) pop() (f frame, ok bool) {
	if len(a.frames) == 0 && a.more != nil {
		a.frames = a.more()
	}
	if len(a.frames) == 0 {
		return f, false
	}
	f, a.frames = a.frames[0], a.frames[1:]
	return f, true
}

// take returns the next message if it is due, else the time to wait, or 0 to wait for a change.
func (c *Conn) take(now time.Time) (f frame, wait time.Duration, ok bool) {
	r := c.relay
	defer r.lock()()
	b := &r.behavior
	if b.CutAfter > 0 && c.delivered >= b.CutAfter && (b.Cuts == 0 || r.cuts < b.Cuts) {
		r.cuts++
		return frame{cut: true}, 0, true
	}
	for {
		i, due := c.ready(now)
		if i < 0 {
			return frame{}, max(0, due.Sub(now)), false
		}
		if now.Before(c.linkFree) {
			return frame{}, c.linkFree.Sub(now), false
		}
		if f, ok = c.next(i); !ok {
			continue
		}
		if !f.cut {
			c.account(&f, now)
		}
		return f, 0, true
	}
}

func (c *Conn) ready(now time.Time) (i int, due time.Time) {
	for i, a := range c.queue {
		if !a.due.After(now) {
			return i, a.due
		}
		if due.IsZero() || a.due.Before(due) {
			due = a.due
		}
	}
	if due.IsZero() {
		due = now
	}
	return -1, due
}

func (c *Conn) next(i int) (frame, bool) {
	a := c.queue[i]
	f, ok := a.pop()
	if ok && a.last > 0 {
		if a.last--; a.last == 0 {
			a.frames, a.more = nil, nil
		}
	}
	if !ok || (len(a.frames) == 0 && a.more == nil) {
		c.unqueue(i)
		return f, ok
	}
	a.due = a.due.Add(a.gap)
	if c.relay.behavior.Interleave {
		c.queue = append(slices.Delete(c.queue, i, i+1), a)
	}
	return f, ok
}

func (c *Conn) unqueue(i int) {
	a := c.queue[i]
	if !a.live {
		c.unread--
	}
	if a.first {
		c.waiting--
	}
	if i == 0 {
		c.queue[0] = nil
		c.queue = c.queue[1:]
	} else {
		c.queue = slices.Delete(c.queue, i, i+1)
	}
	signal(c.room)
}

// push queues an answer. The caller holds relay.mu and calls stir afterwards.
func (c *Conn) push(a *answer) {
	if c.closed {
		return
	}
	c.queue = append(c.queue, a)
	if !a.live {
		c.unread++
	}
	if a.first {
		c.waiting++
	}
}

func (c *Conn) account(f *frame, now time.Time) {
	b := &c.relay.behavior
	if f.text == nil {
		f.text = encode(*f)
	}
	if f.sent != nil {
		f.sent()
	}
	if f.msg.Sub == c.asking || f.msg.Type == wire.TypeNotice {
		c.asking = ""
	}
	c.delivered++
	t := &c.relay.traffic
	t.MessagesSent++
	t.BytesSent += int64(len(f.text))
	if f.msg.Type == wire.TypeEvent {
		t.EventsSent++
	}
	pause := b.MessageDelay
	if b.BytesPerSecond > 0 {
		pause = max(pause, time.Duration(len(f.text))*time.Second/time.Duration(b.BytesPerSecond))
	}
	c.linkFree = now.Add(pause)
}
