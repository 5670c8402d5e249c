package http2

import (
	"encoding/binary"
	"slices"
)

// headerBlock is a header list while its frames arrive.
type headerBlock struct {
	open   bool   // CONTINUATION must follow
	first  frame  // HEADERS
	bytes  []byte // of the frames so far, if there is more than one
	frames int

	// The list so far. What exceeds max is decoded, because the table of HPACK depends on
	// it, and dropped.
	max, size int
	list      []Field
	tooLarge  bool
	endless   bool // so large that decoding it is a burden
}

// field is called by the decoder for each field.
func (b *headerBlock) field(f Field) {
	b.size += int(f.Size())
	if b.size > b.max {
		b.tooLarge = true
		b.endless = b.endless || b.size > 16*b.max
		return
	}
	b.list = append(b.list, f)
}

// keptFields is how many fields the list of a connection keeps room for.
const keptFields = 64

// drop forgets the fields: an idle connection holds little.
func (b *headerBlock) drop() {
	clear(b.list)
	if b.list = b.list[:0]; cap(b.list) > keptFields {
		b.list = nil
	}
}

// dispatch handles one frame. A connError ends the connection, a streamError the stream.
func (c *Conn) dispatch(f frame, payload []byte) error {
	if c.block.open && (f.kind != frameContinuation || f.stream != c.block.first.stream) {
		return connError{ProtocolError, "a header list is interrupted by another frame"}
	}
	if !c.settled && f.kind != frameSettings {
		return connError{ProtocolError, "the first frame is not SETTINGS"}
	}
	switch f.kind {
	case frameData:
		return c.onData(f, payload)
	case frameHeaders:
		return c.onHeaders(f, payload)
	case frameContinuation:
		return c.onContinuation(f, payload)
	case frameReset:
		return c.onReset(f, payload)
	case frameSettings:
		return c.onSettings(f, payload)
	case framePing:
		return c.onPing(f, payload)
	case frameGoAway:
		return c.onGoAway(f, payload)
	case frameWindowUpdate:
		return c.onWindowUpdate(f, payload)
	case framePriority:
		return c.onPriority(f, payload)
	case framePushPromise:
		return connError{ProtocolError, "PUSH_PROMISE, which is disabled"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.charge(1) // frames of other types are ignored (RFC 9113 §5.5)
}

func (c *Conn) onData(f frame, payload []byte) error {
	if f.stream == 0 {
		return connError{ProtocolError, "DATA for stream 0"}
	}
	data, err := unpad(f, payload)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pings = 0
	if c.received -= int64(f.length); c.received < 0 {
		return connError{FlowControlError, "more DATA than the window of the connection"}
	}
	s := c.streams[f.stream]
	switch {
	case s == nil || s.receivedEnd:
		c.giveBack(f.length)
		if len(data) > 0 {
			return c.onClosed(f, s, 0) // many frames may have been on the way
		}
		return c.onClosed(f, s, 1)
	case !s.headed:
		return connError{ProtocolError, "DATA before HEADERS"}
	}
	if len(data) == 0 && !f.has(flagEndStream) {
		if err := c.charge(1); err != nil {
			return err
		}
	} else {
		c.earn(1)
	}
	if s.window -= int64(f.length); s.window < 0 {
		c.giveBack(f.length)
		return streamError{f.stream, FlowControlError, "more DATA than the window of the stream"}
	}
	s.arrived += int64(len(data))
	if s.head.Length >= 0 && (s.arrived > s.head.Length || f.has(flagEndStream) && s.arrived < s.head.Length) && s.mayHaveBody {
		c.giveBack(f.length)
		return streamError{f.stream, ProtocolError, "more or less DATA than the Content-Length"}
	}
	if !s.mayHaveBody && len(data) > 0 {
		c.giveBack(f.length)
		return streamError{f.stream, ProtocolError, "DATA where no body is allowed"}
	}
	if c.bounds() {
		c.giveBack(f.length - len(data))
	} else {
		c.giveBack(f.length)
	}
	s.received(f.length-len(data), data)
	if f.has(flagEndStream) {
		s.endReceiving()
	}
	if f.length > len(data) {
		s.consumed(0) // a Read may wait for data that padding has left no window for
	}
	s.wake()
	return nil
}

// onClosed answers DATA or HEADERS for a stream that does not receive any more. Where they may
// have been on the way when the stream ended, they cost.
func (c *Conn) onClosed(f frame, s *Stream, cost int) error {
	switch {
	case s != nil: // half-closed
		return streamError{f.stream, StreamClosed, "a frame after END_STREAM"}
	case c.isIdle(f.stream):
		return connError{ProtocolError, "a frame for a stream that was not opened"}
	case c.wasReset(f.stream) || f.stream > c.lastServed || c.client:
		return c.charge(cost)
	}
	return connError{StreamClosed, "a frame for a stream that has ended"}
}

// isIdle reports whether a stream was never opened. The lock is held.
func (c *Conn) isIdle(stream uint32) bool {
	return stream > c.opened || stream%2 == 0 // only clients open streams, with odd numbers
}

// wasReset reports whether this side has reset the stream lately. The lock is held.
func (c *Conn) wasReset(stream uint32) bool {
	return slices.Contains(c.resets, stream)
}

func (c *Conn) onHeaders(f frame, payload []byte) error {
	if f.stream == 0 {
		return connError{ProtocolError, "HEADERS for stream 0"}
	}
	payload, err := unpad(f, payload)
	if err != nil {
		return err
	}
	if f.has(flagPriority) {
		if len(payload) < 5 {
			return connError{FrameSizeError, "HEADERS without the priority that its flag announces"}
		}
		if binary.BigEndian.Uint32(payload)&maxWindow == f.stream {
			return connError{ProtocolError, "a stream that depends on itself"}
		}
		payload = payload[5:]
	}
	b := &c.block
	b.first, b.frames = f, 1
	if !f.has(flagEndHeaders) {
		b.open = true
		c.listing.Store(true)
		b.bytes = append(b.bytes[:0], payload...)
		return nil
	}
	return c.onHeaderList(payload)
}

func (c *Conn) onContinuation(f frame, payload []byte) error {
	b := &c.block
	if !b.open {
		return connError{ProtocolError, "CONTINUATION without HEADERS"}
	}
	b.bytes = append(b.bytes, payload...)
	b.frames++
	// A list in many frames is one that was made to cost: a frame holds 16 KiB.
	if len(b.bytes) > 2*b.max+maxFrame || b.frames > 16+len(b.bytes)/1024 {
		return connError{EnhanceYourCalm, "a header list without an end"}
	}
	if !f.has(flagEndHeaders) {
		return nil
	}
	b.open = false
	c.listing.Store(false)
	err := c.onHeaderList(b.bytes)
	b.bytes = nil
	return err
}

// onHeaderList handles the end of a header list.
func (c *Conn) onHeaderList(encoded []byte) error {
	b := &c.block
	b.size, b.tooLarge, b.endless = 0, false, false
	defer b.drop()
	if _, err := c.decoder.Write(encoded); err != nil {
		return connError{CompressionError, err.Error()}
	}
	if err := c.decoder.Close(); err != nil {
		return connError{CompressionError, err.Error()}
	}
	c.releaseEncoded()
	if b.endless {
		return connError{EnhanceYourCalm, "a header list that is far too large"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pings = 0
	id, end := b.first.stream, b.first.has(flagEndStream)
	s := c.streams[id]
	switch {
	case s != nil && s.receivedEnd:
		return c.onClosed(b.first, s, 1)
	case s != nil && c.client && !s.headed:
		return c.onAnswer(s, end)
	case s != nil:
		return c.onTrailers(s, end)
	case !c.client && id%2 == 1 && id > c.opened:
		return c.onRequest(id, end)
	}
	return c.onClosed(b.first, nil, 1)
}

// releaseEncoded lets go of the bytes of a list. The decoder refers to its last bytes until it gets others,
// which are an index of its static table here: that changes no state.
func (c *Conn) releaseEncoded() {
	c.decoder.SetEmitEnabled(false)
	_, _ = c.decoder.Write(anyIndex)
	c.decoder.SetEmitEnabled(true)
	_ = c.decoder.Close() // a new list begins
}

var anyIndex = []byte{0x82}

// onRequest opens a stream for a request. The lock is held.
func (c *Conn) onRequest(id uint32, end bool) error {
	c.opened = id
	switch {
	case c.err != nil:
		return nil
	case c.goingAway && id > c.lastServed:
		return c.charge(1) // the client opens it elsewhere
	case c.active >= c.cfg.MaxStreams:
		if c.cfg.Shared { // what follows of the request is on the way, and costs
			c.earn(2)
		}
		return streamError{id, RefusedStream, "more streams than the settings allow"}
	}
	c.earn(2)
	s := newStream(c)
	s.id, s.sendWindow, s.window, s.target = id, int64(c.streamWindow), int64(c.cfg.Window), int64(c.cfg.Window)
	s.since = c.age
	s.TooLarge = c.block.tooLarge
	if err := s.head.take(c.block.list, true); err != nil && !s.TooLarge {
		c.cfg.Malformed()
		s.free()
		return streamError{id, ProtocolError, err.Error()}
	}
	s.headed, s.mayHaveBody = true, true
	if end && s.head.Length > 0 {
		c.cfg.Malformed()
		s.free()
		return streamError{id, ProtocolError, "a Content-Length without a body"}
	}
	c.streams[id] = s
	c.active++
	if end {
		s.endReceiving()
	}
	c.serve(s)
	return nil
}

// onAnswer handles the head of an answer. The lock is held.
func (c *Conn) onAnswer(s *Stream, end bool) error {
	if c.block.tooLarge {
		return streamError{s.id, Cancel, "an answer whose head is too large"}
	}
	if err := s.head.take(c.block.list, false); err != nil {
		return streamError{s.id, ProtocolError, err.Error()}
	}
	status := s.head.Status
	switch {
	case status == 101:
		return streamError{s.id, ProtocolError, "101, which HTTP/2 does not have (RFC 9113 §8.6)"}
	case status < 200 && end:
		return streamError{s.id, ProtocolError, "an informational answer that ends the stream"}
	case status < 200:
		if s.informed += int(listSize(s.head.Fields)) + informationSize; s.informed > maxInformation {
			return streamError{s.id, EnhanceYourCalm, "more than 256 KiB of informational answers"}
		}
		s.information = append(s.information, Head{Status: status, Fields: append([]Field(nil), s.head.Fields...)})
		s.wake()
		return nil
	}
	s.headed = true
	s.mayHaveBody = !s.bodyless && status != 204 && status != 304
	if s.connect && status < 300 { // what follows is the tunnel, whatever the fields state (RFC 9110 §9.3.6)
		s.mayHaveBody, s.head.Length = true, -1
	}
	if end {
		if s.mayHaveBody && s.head.Length > 0 {
			return streamError{s.id, ProtocolError, "a Content-Length without a body"}
		}
		s.endReceiving()
	}
	c.earn(2)
	s.wake()
	return nil
}

// maxInformation bounds the bytes of the informational answers on a stream, each of which counts
// informationSize more than its fields.
const (
	maxInformation  = 256 << 10
	informationSize = 42 // of a field :status
)

// onTrailers handles the trailers of a stream. The lock is held.
func (c *Conn) onTrailers(s *Stream, end bool) error {
	switch {
	case !end:
		return streamError{s.id, ProtocolError, "trailers without END_STREAM"}
	case c.block.tooLarge:
		return streamError{s.id, EnhanceYourCalm, "trailers that are too large"}
	case s.mayHaveBody && s.head.Length >= 0 && s.arrived != s.head.Length:
		return streamError{s.id, ProtocolError, "less DATA than the Content-Length"}
	}
	if err := s.trailers.takeTrailers(c.block.list); err != nil {
		if !c.client {
			c.cfg.Malformed()
		}
		return streamError{s.id, ProtocolError, err.Error()}
	}
	s.endReceiving()
	s.wake()
	return nil
}

// refuse resets a stream because of what the other side has sent.
func (c *Conn) refuse(fault streamError) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cost := 4
	switch {
	case fault.code == RefusedStream && c.cfg.Shared: // its streams are reset, and their handlers have not returned
		cost = 0
	case fault.code == RefusedStream:
		cost = 2
	}
	if err := c.charge(cost); err != nil {
		return err
	}
	if s := c.streams[fault.stream]; s != nil {
		s.reset(fault.code, &ResetError{Code: fault.code, reason: fault.reason})
		return nil
	}
	c.sendReset(fault.stream, fault.code)
	return nil
}

func (c *Conn) onReset(f frame, payload []byte) error {
	if f.stream == 0 {
		return connError{ProtocolError, "RST_STREAM for stream 0"}
	}
	if len(payload) != 4 {
		return connError{FrameSizeError, "RST_STREAM of another size than 4 bytes"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[f.stream]
	if s == nil {
		if c.isIdle(f.stream) {
			return connError{ProtocolError, "RST_STREAM for a stream that was not opened"}
		}
		return c.charge(1)
	}
	code := Code(binary.BigEndian.Uint32(payload))
	// A server that has answered may reset the rest of the request with NO_ERROR (RFC 9113
	// §8.1): what has arrived of the answer stays.
	if c.client && code == NoError && s.receivedEnd {
		s.sentEnd = true
		s.sendErr = &ResetError{Code: code, Remote: true}
		s.leave()
		s.wake()
		return nil
	}
	err := error(nil)
	switch {
	case c.client || s.sentEnd: // a client that has the answer owes nothing
	case c.cfg.Shared: // its client has left; streams that are reset count until their handlers have returned
	case c.age-s.since <= soon:
		err = c.charge(4)
	}
	s.end(&ResetError{Code: code, Remote: true})
	refused := c.client && code == RefusedStream
	if refused { // although its settings allow the stream
		c.accepted = c.active - 1
	}
	s.leave()
	if refused && c.active == 0 && c.unusable() == nil {
		c.goAway() // the next request opens another connection
	}
	return err
}
