package wstransport

import "time"

// mostHeld is how long one message may hold a part of the read budget.
const mostHeld = 2 * time.Minute

// reserve takes as much of the read budget as the largest message needs, and waits
// until there is that much. It is not taken in pieces: connections that each hold a
// part and wait for more would wait for each other for ever.
func (c *conn) reserve() error {
	// Meanwhile the relay's pings and pongs are out of reach, as when parked.
	c.parked.Store(true)
	c.signs.heard.Add(1)
	defer c.parked.Store(false)
	if err := c.t.reading.Acquire(c.ctx, c.t.cfg.ReadLimit); err != nil {
		return err
	}
	c.held = c.t.cfg.ReadLimit
	return nil
}

// giveBack gives back what is held of the read budget, but for keep bytes.
func (c *conn) giveBack(keep int64) {
	if n := c.held - keep; n > 0 {
		c.t.reading.Release(n)
		c.held = keep
	}
}

// stallTimer ends a connection whose relay stalls while it holds a part of the read
// budget. A nil one does nothing.
type stallTimer struct {
	timer  *time.Timer
	every  time.Duration
	until  time.Time
	unread int // of the chunk that must arrive in time
}

func (c *conn) expectProgress() *stallTimer {
	every := c.t.cfg.PingTimeout
	return &stallTimer{
		timer: time.AfterFunc(every, func() { _ = c.end(errStalled) }), // Receive says it
		every: every, until: time.Now().Add(mostHeld), unread: chunk,
	}
}

// read notes that n bytes have arrived.
func (s *stallTimer) read(n int) {
	if s == nil {
		return
	}
	if s.unread -= n; s.unread <= 0 {
		s.unread = chunk
		s.timer.Reset(min(s.every, time.Until(s.until)))
	}
}

func (s *stallTimer) stop() {
	if s != nil {
		s.timer.Stop()
	}
}
