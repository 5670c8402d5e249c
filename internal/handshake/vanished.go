package handshake

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// A host that vanishes acknowledges nothing more. What it owes then is repeated by TCP for a quarter of
// an hour, without probes of keepalive, and what its connections hold stays in use: while a service
// pushes small answers they fit into the buffer of the socket, which counts as progress.
// TCP_USER_TIMEOUT is not for that: it also ends the connection of a slow reader, whose host answers
// each probe of its closed window.
const (
	owedInterval = 15 * time.Second
	// owedLimit is longer than the longest pause between two such probes, 120 s. It is that of Go's
	// keepalive, which finds the hosts that owe nothing.
	owedLimit = 150 * time.Second
)

// debts are connections whose other ends may owe an acknowledgement.
type debts struct {
	read func(syscall.RawConn) (owed bool, silent time.Duration, err error)

	mu   sync.Mutex
	open map[net.Conn]*debt
}

// debt is one of them.
type debt struct {
	raw   syscall.RawConn
	since time.Time // the first check since the other end was heard at which it owed something
}

// add adds a connection, which is closed by to. It stays until it is closed.
func (d *debts) add(conn, to net.Conn) {
	raw := rawOf(conn)
	if raw == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = map[net.Conn]*debt{}
	}
	d.open[to] = &debt{raw: raw}
}

// check closes the connections whose hosts have vanished, and returns them.
func (d *debts) check(now time.Time) (vanished []net.Conn) {
	d.mu.Lock()
	for conn, one := range d.open {
		owed, silent, err := d.read(one.raw)
		if err != nil { // it is closed
			delete(d.open, conn)
			continue
		}
		if one.vanished(now, owed, silent) {
			delete(d.open, conn)
			vanished = append(vanished, conn)
		}
	}
	d.mu.Unlock()
	for _, conn := range vanished {
		_ = conn.Close()
	}
	return vanished
}

// vanished notes whether the other end owes an acknowledgement, and for how long it has been silent. A
// connection that was idle is silent when it begins to owe something, so the time counts from then.
func (o *debt) vanished(now time.Time, owed bool, silent time.Duration) bool {
	switch {
	case !owed:
		o.since = time.Time{}
	case o.since.IsZero() || now.Add(-silent).After(o.since):
		o.since = now
	}
	return owed && now.Sub(o.since) >= owedLimit
}

// rawOf returns the socket of a connection, nil if there is none.
func rawOf(conn net.Conn) syscall.RawConn {
	for {
		if around, ok := conn.(interface{ NetConn() net.Conn }); ok {
			conn = around.NetConn()
			continue
		}
		below, ok := conn.(syscall.Conn)
		if !ok {
			return nil
		}
		raw, err := below.SyscallConn()
		if err != nil {
			return nil
		}
		return raw
	}
}

// endVanished closes the connections of hosts that vanish, until Close.
func (l *Listener) endVanished() {
	tick := time.NewTicker(owedInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.open.Done():
			return
		case now := <-tick.C:
			l.judge(now)
		}
	}
}

func (l *Listener) judge(now time.Time) {
	if gone := l.debts.check(now); len(gone) > 0 {
		l.cfg.Logger.Warn("connections closed: their hosts acknowledge nothing any more: they have vanished, or the network in between drops everything",
			"connections", len(gone), "addr", gone[0].RemoteAddr().String())
	}
}
