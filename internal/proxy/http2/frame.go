package http2

import (
	"encoding/binary"
	"fmt"
)

// frameType is the type of a frame (RFC 9113 §6).
type frameType uint8

const (
	frameData frameType = iota
	frameHeaders
	framePriority
	frameReset
	frameSettings
	framePushPromise
	framePing
	frameGoAway
	frameWindowUpdate
	frameContinuation
)

// The flags of frames.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

const (
	frameHead = 9        // bytes before the payload of each frame
	maxFrame  = 16 << 10 // the largest payload that is received, and sent
	maxWindow = 1<<31 - 1
	// firstWindow is the size of each window before settings change it.
	firstWindow = 65535
)

// frame is the head of one frame.
type frame struct {
	length int
	kind   frameType
	flags  uint8
	stream uint32
}

func parseFrame(b []byte) frame {
	return frame{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   frameType(b[3]), flags: b[4],
		stream: binary.BigEndian.Uint32(b[5:]) & maxWindow, // the first bit is reserved
	}
}

func (f frame) has(flag uint8) bool { return f.flags&flag != 0 }

// append adds the head of a frame.
func (f frame) append(b []byte) []byte {
	b = append(b, byte(f.length>>16), byte(f.length>>8), byte(f.length), byte(f.kind), f.flags)
	return binary.BigEndian.AppendUint32(b, f.stream)
}

func appendReset(b []byte, stream uint32, code Code) []byte {
	return binary.BigEndian.AppendUint32(frame{4, frameReset, 0, stream}.append(b), uint32(code))
}

func appendWindowUpdate(b []byte, stream uint32, more uint32) []byte {
	return binary.BigEndian.AppendUint32(frame{4, frameWindowUpdate, 0, stream}.append(b), more)
}

func appendPing(b []byte, flags uint8, data [8]byte) []byte {
	return append(frame{8, framePing, flags, 0}.append(b), data[:]...)
}

func appendGoAway(b []byte, last uint32, code Code, reason string) []byte {
	b = frame{8 + len(reason), frameGoAway, 0, 0}.append(b)
	b = binary.BigEndian.AppendUint32(b, last)
	b = binary.BigEndian.AppendUint32(b, uint32(code))
	return append(b, reason...)
}

// setting is one of the settings of a connection (RFC 9113 §6.5.2).
type setting struct {
	id    uint16
	value uint32
}

const (
	settingHeaderTableSize = iota + 1
	settingEnablePush
	settingMaxStreams
	settingInitialWindow
	settingMaxFrame
	settingMaxHeaderList
	_
	settingConnectProtocol // RFC 8441
)

func appendSettings(b []byte, settings ...setting) []byte {
	b = frame{6 * len(settings), frameSettings, 0, 0}.append(b)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, s.id)
		b = binary.BigEndian.AppendUint32(b, s.value)
	}
	return b
}

// Code is the reason of a reset stream or of a connection that ends (RFC 9113 §7).
type Code uint32

// The codes.
const (
	NoError Code = iota
	ProtocolError
	InternalError
	FlowControlError
	SettingsTimeout
	StreamClosed
	FrameSizeError
	RefusedStream
	Cancel
	CompressionError
	ConnectError
	EnhanceYourCalm
	InadequateSecurity
	HTTP11Required
)

var codeNames = [...]string{
	"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
	"REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED",
}

// String returns the name of the code in RFC 9113.
func (c Code) String() string {
	if int64(c) < int64(len(codeNames)) {
		return codeNames[c]
	}
	return fmt.Sprintf("code 0x%x", uint32(c))
}

// unpad returns the payload of a frame without its padding.
func unpad(f frame, payload []byte) ([]byte, error) {
	if !f.has(flagPadded) {
		return payload, nil
	}
	if len(payload) == 0 {
		return nil, connError{FrameSizeError, "a padded frame without a length of its padding"}
	}
	padding := int(payload[0])
	if padding >= len(payload) {
		return nil, connError{ProtocolError, "more padding than payload"}
	}
	return payload[1 : len(payload)-padding], nil
}
