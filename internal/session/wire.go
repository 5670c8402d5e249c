package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ringway/ringway/membership/identity"
)

// Protocol names the protocol: in ALPN, and in the Upgrade of a connection in clear text.
const Protocol = "ringway-session/1"

// Path is the path of the request that begins a session in clear text.
const Path = "/" + Protocol

// Kind is the first byte of a frame. Three bytes of length and the payload follow.
type Kind byte

// The frames.
const (
	KindHello   Kind = 1 // worker: who it is
	KindRecord  Kind = 2 // worker: its record, as package advertise encodes it
	KindState   Kind = 3 // worker: one byte of flags
	KindLeave   Kind = 4 // worker: it leaves the fleet
	KindMoved   Kind = 5 // worker: it goes to other relays, and lives
	KindRow     Kind = 6 // relay: the relays that the worker should have sessions with
	KindRefused Kind = 7 // relay: why it ends the session
	KindBeat    Kind = 8 // both: nothing, every few seconds
)

// FlagDraining in a state: an operator has taken the worker out of rotation.
const FlagDraining = 1

// Bounds of frames.
const (
	format      = 1
	headBytes   = 4
	maxString   = 255
	maxText     = 512
	MaxHello    = 1 + 8 + 6*(1+maxString)
	MaxRow      = 8 + 1 + maxString + 8 + 2 + maxRow*(2*(1+maxString)+8)
	maxRow      = 64
	maxRefusal  = 1 + maxString + 2 + maxText
	maxFromHere = max(MaxRow, maxRefusal)
)

var errFrame = errors.New("malformed frame")

// AppendFrame appends a frame.
func AppendFrame(b []byte, kind Kind, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(kind), byte(n>>16), byte(n>>8), byte(n))
	return append(b, payload...)
}

// ReadFrame reads a frame of at most limit bytes, and allocates for no longer one.
func ReadFrame(r io.Reader, limit int) (Kind, []byte, error) {
	var head [headBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(head[1])<<16 | int(head[2])<<8 | int(head[3])
	if n > limit {
		return 0, nil, fmt.Errorf("%w: kind %d with %d bytes, at most %d are read", errFrame, head[0], n, limit)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	return Kind(head[0]), payload, nil
}

// Reader reads the fields of a payload. After the first error all reads return nothing.
type Reader struct {
	Rest []byte
	Err  error
}

// Bytes reads n bytes, which belong to the payload.
func (r *Reader) Bytes(n int) []byte {
	if r.Err == nil && (n < 0 || n > len(r.Rest)) {
		r.Err = errFrame
	}
	if r.Err != nil {
		return nil
	}
	b := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return b
}

// Uint reads a number of the given number of bytes, big endian.
func (r *Reader) Uint(size int) (n uint64) {
	for _, b := range r.Bytes(size) {
		n = n<<8 | uint64(b)
	}
	return n
}

// String reads a string with one byte of length, of printable ASCII.
func (r *Reader) String() string {
	s := string(r.Bytes(int(r.Uint(1))))
	if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) && r.Err == nil {
		r.Err = fmt.Errorf("%w: text that cannot be printed", errFrame)
	}
	return s
}

// Name reads a string that is empty or a name of the fleet.
func (r *Reader) Name() string {
	s := r.String()
	if s != "" && r.Err == nil {
		r.Err = identity.CheckName(s)
	}
	return s
}

// AppendString appends a string with one byte of length; a longer one is cut.
func AppendString(b []byte, s string) []byte {
	s = s[:min(len(s), maxString)]
	return append(append(b, byte(len(s))), s...)
}

// Hello is the first message of a worker.
type Hello struct {
	Epoch                       uint64
	Cluster, Environment, ID    string
	Datacenter, Region, Version string
}

// Encode returns the payload.
func (h Hello) Encode() []byte {
	b := binary.BigEndian.AppendUint64([]byte{format}, h.Epoch)
	for _, s := range []string{h.Cluster, h.Environment, h.ID, h.Datacenter, h.Region, h.Version} {
		b = AppendString(b, s)
	}
	return b
}

// DecodeHello reads a hello. Later releases may append fields.
func DecodeHello(b []byte) (h Hello, err error) {
	r := &Reader{Rest: b}
	if f := r.Uint(1); r.Err == nil && f != format {
		return h, fmt.Errorf("hello of format %d: this build reads %d", f, format)
	}
	h = Hello{Epoch: r.Uint(8), Cluster: r.Name(), Environment: r.Name(), ID: r.Name(), Datacenter: r.Name(), Region: r.Name(), Version: r.String()}
	if r.Err == nil && (h.ID == "" || h.Epoch == 0) {
		r.Err = fmt.Errorf("%w: a hello without id or epoch", errFrame)
	}
	return h, r.Err
}

// Row lists the relays that a worker should have sessions with.
type Row struct {
	Version uint64 // grows with each row of one session
	// Self and Epoch are the relay that sends the row.
	Self  string
	Epoch uint64
	// The first Size relays are the row. The others take the places of those of the row that
	// cannot be reached, in this order, until the row states otherwise.
	Size   int
	Relays []RowRelay
}

// RowRelay is a relay of a Row.
type RowRelay struct {
	ID      string
	Epoch   uint64
	Address string // of its peer listener
}

// Encode returns the payload; relays beyond the most that a row has are left out.
func (row Row) Encode() []byte {
	relays := row.Relays[:min(len(row.Relays), maxRow)]
	b := AppendString(binary.BigEndian.AppendUint64(nil, row.Version), row.Self)
	b = append(binary.BigEndian.AppendUint64(b, row.Epoch), byte(min(row.Size, len(relays))), byte(len(relays)))
	for _, relay := range relays {
		b = binary.BigEndian.AppendUint64(AppendString(b, relay.ID), relay.Epoch)
		b = AppendString(b, relay.Address)
	}
	return b
}

// DecodeRow reads a row.
func DecodeRow(b []byte) (row Row, err error) {
	r := &Reader{Rest: b}
	row.Version, row.Self, row.Epoch = r.Uint(8), r.Name(), r.Uint(8)
	row.Size = int(r.Uint(1))
	n := int(r.Uint(1))
	if r.Err == nil && (row.Self == "" || row.Size > n) {
		r.Err = fmt.Errorf("%w: a row without its relay, or of more relays than it has", errFrame)
	}
	if r.Err == nil && n > maxRow {
		r.Err = fmt.Errorf("%w: a row of %d relays", errFrame, n)
	}
	for range n {
		relay := RowRelay{ID: r.Name(), Epoch: r.Uint(8), Address: r.String()}
		if r.Err == nil && (relay.ID == "" || relay.Address == "") {
			r.Err = fmt.Errorf("%w: a relay without id or address", errFrame)
		}
		if r.Err != nil {
			return Row{}, r.Err
		}
		row.Relays = append(row.Relays, relay)
	}
	return row, r.Err
}

// Refusal is why a relay ended a session.
type Refusal struct {
	Code string // one of the reasons of the metric ringway_session_refused_total
	Text string
}

func (e *Refusal) Error() string { return "refused (" + e.Code + "): " + e.Text }

// Encode returns the payload.
func (e *Refusal) Encode() []byte {
	text := e.Text[:min(len(e.Text), maxText)]
	b := AppendString(nil, e.Code)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

// DecodeRefusal reads a refusal. Characters that cannot be printed are replaced.
func DecodeRefusal(b []byte) (*Refusal, error) {
	r := &Reader{Rest: b}
	e := &Refusal{Code: r.String()}
	text := r.Bytes(int(r.Uint(2)))
	if r.Err != nil || len(text) > maxText {
		return nil, errFrame
	}
	e.Text = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '.'
		}
		return c
	}, string(text))
	return e, nil
}
