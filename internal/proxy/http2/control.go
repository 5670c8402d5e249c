package http2

import (
	"encoding/binary"
	"time"
)

// A budget bounds what the other side can make this side do for nothing: it can send frames
// that carry nothing, and begin requests only to reset them soon (CVE-2023-44487), or to make
// this side reset them. Frames that carry something pay for those that do not, so that the
// budget of a client with many short requests, pings and cancelled calls stays full. The
// connection of one that only costs ends with ENHANCE_YOUR_CALM.
const (
	// maxBudget is the budget of a new connection.
	maxBudget = 2000
	// refillPerSecond is what the budget grows by itself, up to maxBudget.
	refillPerSecond = 100
	// soon is how old a request is at most whose reset costs. An older one has more likely missed a
	// deadline, and MaxStreams bounds how many of them there are. It is half of a usual deadline of one
	// second, because the calls of Check count the time, which are a fifth of a second apart.
	soon = 500 * time.Millisecond
)

// charge takes from the budget. The lock is held.
func (c *Conn) charge(cost int) error {
	if c.budget -= cost; c.budget < 0 {
		return connError{EnhanceYourCalm, "too many frames that carry nothing, or requests that are reset"}
	}
	return nil
}

// earn adds to the budget. The lock is held.
func (c *Conn) earn(gain int) { c.budget = min(c.budget+gain, maxBudget) }

// refill adds what the budget grows in time. The lock is held.
func (c *Conn) refill(elapsed time.Duration) {
	c.idleBudget += elapsed * refillPerSecond
	whole := c.idleBudget / time.Second
	c.idleBudget -= whole * time.Second
	c.earn(int(whole))
}

func (c *Conn) onSettings(f frame, payload []byte) error {
	switch {
	case f.stream != 0:
		return connError{ProtocolError, "SETTINGS for a stream"}
	case f.has(flagAck) && f.length > 0, f.length%6 != 0:
		return connError{FrameSizeError, "SETTINGS of a wrong size"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.has(flagAck) {
		if !c.settled {
			return connError{ProtocolError, "the first frame is not SETTINGS"}
		}
		return c.charge(1)
	}
	if c.settled {
		if err := c.charge(4 + f.length/6); err != nil {
			return err
		}
	}
	if !c.settled && c.client {
		c.maxStreams = standardStreams
	}
	for ; len(payload) > 0; payload = payload[6:] {
		if err := c.set(binary.BigEndian.Uint16(payload), binary.BigEndian.Uint32(payload[2:])); err != nil {
			return err
		}
	}
	if c.settled = true; c.client {
		c.setReady()
	}
	c.takeOut()
	c.out = frame{0, frameSettings, flagAck, 0}.append(c.out)
	c.kick()
	c.grantSlots()
	return nil
}

// standardStreams is how many streams a client opens if the settings of the other side name no
// limit: RFC 9113 §6.5.2 recommends that no side allows fewer.
const standardStreams = 100

// set applies one setting of the other side. The lock is held.
func (c *Conn) set(id uint16, value uint32) error {
	switch id {
	case settingHeaderTableSize:
		c.encoder.SetMaxDynamicTableSize(value) // at most headerTable
	case settingEnablePush:
		if value > 1 || c.client && value > 0 {
			return connError{ProtocolError, "a bad value of ENABLE_PUSH"}
		}
	case settingMaxStreams:
		if c.client {
			c.maxStreams = int(min(value, 1<<20))
		}
	case settingInitialWindow:
		if value > maxWindow {
			return connError{FlowControlError, "an initial window of more than 2^31-1 bytes"}
		}
		more := int64(value) - int64(c.streamWindow)
		c.streamWindow = int32(value)
		for _, s := range c.streams {
			if s.sendWindow += more; s.sendWindow > maxWindow {
				return connError{FlowControlError, "an initial window that makes one of more than 2^31-1 bytes"}
			}
			s.wake()
		}
	case settingMaxFrame:
		if value < maxFrame || value > 1<<24-1 {
			return connError{ProtocolError, "a bad value of MAX_FRAME_SIZE"}
		}
	case settingMaxHeaderList:
		c.maxHeaderList = value
	case settingConnectProtocol:
		if value > 1 || c.connectProtocol && value == 0 {
			return connError{ProtocolError, "a bad value of ENABLE_CONNECT_PROTOCOL"}
		}
		c.connectProtocol = value == 1
	}
	return nil
}

func (c *Conn) onPing(f frame, payload []byte) error {
	switch {
	case f.stream != 0:
		return connError{ProtocolError, "PING for a stream"}
	case len(payload) != 8:
		return connError{FrameSizeError, "PING of another size than 8 bytes"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	data := [8]byte(payload)
	if !f.has(flagAck) {
		if err := c.charge(1); err != nil {
			return err
		}
		c.takeOut()
		c.out = appendPing(c.out, flagAck, data)
		c.kick()
		return nil
	}
	switch {
	case data == shutdownPing && c.goingAway && c.lastServed == maxStreamID && !c.client:
		c.endIntake()
	case c.pinged:
		c.pinged = false
	default:
		return c.charge(1)
	}
	return nil
}

func (c *Conn) onGoAway(f frame, payload []byte) error {
	switch {
	case f.stream != 0:
		return connError{ProtocolError, "GOAWAY for a stream"}
	case len(payload) < 8:
		return connError{FrameSizeError, "GOAWAY of less than 8 bytes"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.charge(1); err != nil || !c.client {
		return err // a client that goes away opens no streams, which is all
	}
	last := binary.BigEndian.Uint32(payload) & maxWindow
	code := Code(binary.BigEndian.Uint32(payload[4:]))
	reason := string(payload[8:min(len(payload), 208)])
	c.away = &GoAwayError{Code: code, Reason: reason}
	unprocessed := &GoAwayError{Code: code, Reason: reason, unprocessed: true}
	for _, s := range c.slots {
		s.end(unprocessed)
	}
	c.slots = nil
	for id, s := range c.streams {
		if id > last {
			s.end(unprocessed)
			s.leave()
		}
	}
	c.cfg.Room()
	c.endIfDone()
	return nil
}

func (c *Conn) onWindowUpdate(f frame, payload []byte) error {
	if len(payload) != 4 {
		return connError{FrameSizeError, "WINDOW_UPDATE of another size than 4 bytes"}
	}
	more := int64(binary.BigEndian.Uint32(payload) & maxWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.charge(1); err != nil {
		return err
	}
	if f.stream == 0 {
		if more == 0 {
			return connError{ProtocolError, "WINDOW_UPDATE of nothing"}
		}
		if c.sendWindow += more; c.sendWindow > maxWindow {
			return connError{FlowControlError, "a window of more than 2^31-1 bytes"}
		}
		c.admit()
		return nil
	}
	s := c.streams[f.stream]
	switch {
	case s == nil && c.isIdle(f.stream):
		return connError{ProtocolError, "WINDOW_UPDATE for a stream that was not opened"}
	case s == nil:
		return nil
	case more == 0:
		return streamError{f.stream, ProtocolError, "WINDOW_UPDATE of nothing"}
	}
	if s.sendWindow += more; s.sendWindow > maxWindow {
		return streamError{f.stream, FlowControlError, "a window of more than 2^31-1 bytes"}
	}
	s.wake()
	return nil
}

// onPriority checks a frame that means nothing any more (RFC 9113 §5.3).
func (c *Conn) onPriority(f frame, payload []byte) error {
	switch {
	case f.stream == 0:
		return connError{ProtocolError, "PRIORITY for stream 0"}
	case len(payload) != 5:
		return streamError{f.stream, FrameSizeError, "PRIORITY of another size than 5 bytes"}
	case binary.BigEndian.Uint32(payload)&maxWindow == f.stream:
		return streamError{f.stream, ProtocolError, "a stream that depends on itself"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.charge(1)
}
