package http2

import (
	"net"
	"os"
	"sync"
	"time"
)

// Tunnel is the stream of an extended CONNECT (RFC 8441) as a connection, for both sides.
// End must be called before Stream.Close.
type Tunnel struct {
	s           *Stream
	read, write Deadline
}

// NewTunnel returns a stream as a connection.
func NewTunnel(s *Stream) *Tunnel {
	t := &Tunnel{s: s}
	t.read.Expire = func() { s.InterruptRead(os.ErrDeadlineExceeded) }
	t.read.Renew = func() { s.InterruptRead(nil) }
	t.write.Expire = func() { s.InterruptWrite(os.ErrDeadlineExceeded) }
	t.write.Renew = func() { s.InterruptWrite(nil) }
	return t
}

func (t *Tunnel) Read(p []byte) (int, error)  { return t.s.Read(p) }
func (t *Tunnel) Write(p []byte) (int, error) { return t.s.Write(p, false) }

// CloseWrite ends the direction to the other side.
func (t *Tunnel) CloseWrite() error {
	_, err := t.s.Write(nil, true)
	return err
}

// Close ends both directions.
func (t *Tunnel) Close() error {
	t.s.Reset(Cancel)
	return nil
}

// End stops the deadlines. Nothing may use the tunnel any more.
func (t *Tunnel) End() {
	t.read.Stop()
	t.write.Stop()
}

func (t *Tunnel) LocalAddr() net.Addr  { return t.s.c.nc.LocalAddr() }
func (t *Tunnel) RemoteAddr() net.Addr { return t.s.c.nc.RemoteAddr() }

func (t *Tunnel) SetDeadline(d time.Time) error {
	t.read.Set(d)
	t.write.Set(d)
	return nil
}

func (t *Tunnel) SetReadDeadline(d time.Time) error {
	t.read.Set(d)
	return nil
}

func (t *Tunnel) SetWriteDeadline(d time.Time) error {
	t.write.Set(d)
	return nil
}

// Deadline calls a function at a time. Its zero value has no time.
type Deadline struct {
	// Expire is called when the time has come. Required.
	Expire func()
	// Renew is called when a time that has not come is set, or none. Nil does nothing.
	Renew func()

	mu    sync.Mutex // held while a function runs; guards the fields below
	timer *time.Timer
	round int // a timer of another round has been replaced
}

// Set sets the time, and with the zero time none.
func (d *Deadline) Set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
	left := time.Until(t)
	if !t.IsZero() && left <= 0 {
		d.Expire()
		return
	}
	if d.Renew != nil {
		d.Renew()
	}
	if t.IsZero() {
		return
	}
	round := d.round
	d.timer = time.AfterFunc(left, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.round == round {
			d.Expire()
		}
	})
}

// Stop removes the time. Expire does not run any more.
func (d *Deadline) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop()
}

// stop removes the time. The lock is held.
func (d *Deadline) stop() {
	d.round++
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
