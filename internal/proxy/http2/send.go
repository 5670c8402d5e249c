package http2

import (
	"bytes"
	"runtime"
	"slices"
	"sync"

	"github.com/ringway/ringway/internal/proxy/socket"
)

const (
	// outLimit is how many bytes of bodies wait to be sent, while as many are written.
	outLimit = 64 << 10
	// crumb is a piece of a body so small that only an attacker's window makes it.
	crumb = 256
	// paidPiece is how much of a body pays for two frames that carry nothing.
	paidPiece = 2 << 10
	// unreadLimit is how many bytes may wait to be sent before a server stops reading and lets its
	// answers wait.
	unreadLimit = 256 << 10
	// keptEncoded is how large a buffer of encoded heads stays.
	keptEncoded = 4 << 10
	// writePiece is how much is written at a time: Check sees progress after each piece.
	writePiece = 32 << 10
	// keptOut is the largest buffer that is returned to the pool.
	keptOut = outLimit + 2*maxFrame
)

// maxResets is how many streams are remembered that this side has reset.
const maxResets = 1024

var outBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// takeOut makes room for frames to send. The lock is held.
func (c *Conn) takeOut() {
	if c.outPool == nil {
		c.outPool = outBuffers.Get().(*[]byte)
		c.out = (*c.outPool)[:0]
	}
}

func putOut(pool *[]byte, b []byte) {
	if cap(b) <= keptOut {
		*pool = b[:0]
		outBuffers.Put(pool)
	}
}

// kick starts the goroutine that writes, unless it runs. The lock is held.
func (c *Conn) kick() {
	if c.sealed {
		c.out = c.out[:0] // such as the answer to a PING that Run had read before
		return
	}
	if !c.writing {
		c.writing = true
		c.blocked = 0
		go c.sendOut()
	}
}

// flush writes what waits until nothing does. It first lets the other goroutines run that
// are ready, because they may add to it: one write then sends the frames of many streams.
func (c *Conn) flush() {
	runtime.Gosched()
	c.mu.Lock()
	for len(c.out) > 0 {
		out, pool := c.out, c.outPool
		c.out, c.outPool = nil, nil
		c.room.Signal()
		c.nextHead()
		c.admit()
		err := c.write(out)
		putOut(pool, out)
		if err != nil {
			c.fail(err)
			c.cut = true
			break
		}
	}
	if c.outPool != nil && len(c.out) == 0 {
		putOut(c.outPool, c.out)
		c.out, c.outPool = nil, nil
	}
	c.writing = false
	finished, lingers, cut, inOrder := c.finished, c.lingers, c.cut, c.err == ErrClosed
	c.sealed = finished
	if finished {
		defer c.endFlushing()
	}
	c.mu.Unlock()
	if !finished {
		return
	}
	if cut {
		socket.Reset(c.nc) // in order, the system would go on sending to a client that does not read
		return
	}
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok && lingers {
		// TLS sends an alert, for which a client that reads slowly may have no room. The frames had their
		// own end.
		if err := half.CloseWrite(); err == nil || inOrder {
			return // Run closes the connection
		}
	}
	_ = c.nc.Close() // everything that could be sent was sent
}

// endFlushing lets Run return.
func (c *Conn) endFlushing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.flushed:
	default:
		close(c.flushed)
	}
}

// write writes all of b without the lock, which is held before and after.
func (c *Conn) write(b []byte) error {
	for len(b) > 0 {
		piece := b[:min(len(b), writePiece)]
		c.mu.Unlock()
		_, err := c.writePiece(piece)
		c.mu.Lock()
		c.blocked = 0
		if err != nil {
			return err
		}
		b = b[len(piece):]
	}
	return nil
}

func (c *Conn) writePiece(b []byte) (int, error) {
	if c.plain {
		return c.socket.Write(b)
	}
	return c.nc.Write(b)
}

// sendHeaders adds a header list. The lock is held.
func (c *Conn) sendHeaders(s *Stream, fields []Field, end bool) {
	c.encoded.Reset()
	for i := range fields {
		_ = c.encoder.WriteField(fields[i]) // to memory
	}
	block := c.encoded.Bytes()
	c.takeOut()
	f := frame{kind: frameHeaders, stream: s.id}
	if end {
		f.flags |= flagEndStream
	}
	for {
		piece := block[:min(len(block), maxFrame)]
		block = block[len(piece):]
		if len(block) == 0 {
			f.flags |= flagEndHeaders
		}
		f.length = len(piece)
		c.out = append(f.append(c.out), piece...)
		if len(block) == 0 {
			break
		}
		f.kind, f.flags = frameContinuation, 0
	}
	if c.encoded.Cap() > keptEncoded { // an idle connection holds little
		c.encoded = bytes.Buffer{}
	}
	if end {
		s.endSending()
	}
	c.kick()
}

// sendData adds a part of a body. The lock is held.
func (c *Conn) sendData(s *Stream, p []byte, end bool) {
	f := frame{length: len(p), kind: frameData, stream: s.id}
	if end {
		f.flags = flagEndStream
	}
	c.takeOut()
	c.out = append(f.append(c.out), p...)
	s.sendWindow -= int64(len(p))
	c.sendWindow -= int64(len(p))
	// The other side answers with WINDOW_UPDATE, which costs: programs in Go send two of them for
	// each 4 KiB. One that asks for a body in crumbs pays for them.
	if len(p) >= crumb || len(p) > 0 && s.sendWindow > 0 && c.sendWindow > 0 {
		c.earn(2 * ((len(p) + paidPiece - 1) / paidPiece))
	}
	if end {
		s.endSending()
	}
	c.kick()
}

// sendReset adds RST_STREAM. The lock is held.
func (c *Conn) sendReset(stream uint32, code Code) {
	if c.reset < maxResets {
		c.resets = append(c.resets, stream)
	} else {
		c.resets[c.reset%maxResets] = stream
	}
	c.reset++
	c.takeOut()
	c.out = appendReset(c.out, stream, code)
	c.kick()
}

// queue makes a stream wait for its turn to send. One that could not use its turn is the
// next. The lock is held.
func (c *Conn) queue(s *Stream) {
	switch {
	case s.queued:
		return
	case s.turn:
		s.turn = false
		c.turns--
		c.waiting = slices.Insert(c.waiting, 0, s)
	default:
		c.waiting = append(c.waiting, s)
	}
	s.queued = true
	c.admit()
}

// leaveQueue removes a stream that waits for its turn, or has it. The lock is held.
func (c *Conn) leaveQueue(s *Stream) {
	if s.queued {
		s.queued = false
		i := slices.Index(c.waiting, s)
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	c.endTurn(s)
}

// endTurn lets the others send if the stream had its turn. The lock is held.
func (c *Conn) endTurn(s *Stream) {
	if s.turn {
		s.turn = false
		c.turns--
	}
	c.admit()
}

// admit gives the streams that have waited longest their turn, as many as there is room
// for. Each sends one frame and waits again, and the next turns begin when these have ended,
// so that the streams share the connection equally. The lock is held.
func (c *Conn) admit() {
	if c.turns > 0 {
		return
	}
	for room := min(c.sendWindow, int64(outLimit-len(c.out))); room > 0 && len(c.waiting) > 0; room -= maxFrame {
		s := c.waiting[0]
		c.waiting = slices.Delete(c.waiting, 0, 1)
		s.queued, s.turn = false, true
		c.turns++
		s.wake()
	}
}
