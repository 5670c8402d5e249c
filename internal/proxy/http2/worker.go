package http2

import "github.com/ringway/ringway/internal/publish"

// serve gives a stream to a worker. A worker serves one stream after the other: a new
// goroutine for each would first grow its stack, which costs more than a short request
// itself. The lock is held.
func (c *Conn) serve(s *Stream) {
	last := len(c.workers) - 1
	if last < 0 {
		c.starting.Add(1)
		go c.work(s)
		return
	}
	c.workers[last] <- s // it has room
	c.workers = c.workers[:last]
	c.spare = min(c.spare, last)
}

func (c *Conn) work(s *Stream) {
	if c.starting.Add(-1) == maxStarting/2 {
		publish.Notify(c.started)
	}
	next := make(chan *Stream, 1)
	for s != nil {
		c.cfg.Serve(s)
		c.mu.Lock()
		if c.err != nil {
			c.mu.Unlock()
			return
		}
		c.workers = append(c.workers, next)
		c.mu.Unlock()
		s = <-next
	}
}

// endWorkers ends n workers that wait. The lock is held.
func (c *Conn) endWorkers(n int) {
	left := len(c.workers) - n
	for _, w := range c.workers[left:] {
		close(w)
	}
	clear(c.workers[left:])
	if c.workers = c.workers[:left]; left == 0 {
		c.workers = nil // an idle connection holds little
	}
}
