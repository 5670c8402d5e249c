package membership

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ringway/ringway/membership/identity"
)

// The hello is the first thing on every stream, in both directions, before
// memberlist or anything else sees it:
//
//	initiator ──► length u16, "RWY", cluster, environment, format u8, protocol, id, epoch u64, role, keys, tick u64
//	acceptor  ──► verdict (0 ok, else a refusal) and its own hello
//
// Format 2 is that of members with certificates: they sign their gossip, and the
// tick says what time it is there (see guard.go). A member that does not sign is
// refused, because nothing that it gossips would count.
//
// An acceptor with a certificate that is greeted in clear text answers in clear text, with
// the verdict no_certificate and no hello: what it is called is for members.
//
// A string is a length byte and that many bytes. Cluster and environment come
// first and are judged before anything behind them is decoded: whoever belongs
// elsewhere is told so, whatever else its build sends. Unknown bytes at the end
// are skipped.
const (
	helloMagic  = "RWY"
	helloFormat = 1
	helloSigned = 2
	maxHello    = 2048
)

// The protocols a stream can carry.
const (
	protocolMemberlist = "ml/1"
	protocolKeys       = "keys/1"
	protocolProbe      = "probe/1" // only hellos: is this a member that we may join?
	// ProtocolSync is the anti-entropy protocol of package advertise.
	ProtocolSync = "adsync/1"
)

type hello struct {
	cluster     string
	environment string
	format      uint8
	protocol    string
	id          string
	epoch       uint64
	role        Role
	keys        string // fingerprints of the gossip keys, the one in use first, with commas; empty without keys
	tick        uint64 // the sender's time, in format 2
}

var errHello = errors.New("malformed hello")

// A handshake of TLS begins with these two bytes, which as a length are beyond maxHello.
const recordHandshake, tlsMajor = 0x16, 3

var errTLS = errors.New("a TLS handshake where a hello was expected")

func (h hello) append(b []byte) []byte {
	b = append(b, helloMagic...)
	b = appendString(b, h.cluster)
	b = appendString(b, h.environment)
	b = append(b, h.format)
	b = appendString(b, h.protocol)
	b = appendString(b, h.id)
	b = binary.BigEndian.AppendUint64(b, h.epoch)
	b = appendString(b, string(h.role))
	b = appendString(b, h.keys)
	return binary.BigEndian.AppendUint64(b, h.tick)
}

func appendString(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

// decodeHello reads a hello in two steps. A nil error with complete=false means
// that cluster and environment were read and the rest was not understood: enough
// to refuse, not enough to admit.
func decodeHello(b []byte) (h hello, complete bool, err error) {
	if len(b) < len(helloMagic) || string(b[:len(helloMagic)]) != helloMagic {
		return h, false, fmt.Errorf("%w: it does not begin with %q: is the other end a Ringway member?", errHello, helloMagic)
	}
	r := &fieldReader{rest: b[len(helloMagic):]}
	h.cluster, h.environment = r.string(), r.string()
	if r.failed {
		return h, false, fmt.Errorf("%w: cluster and environment are cut short", errHello)
	}
	h.format, h.protocol, h.id = r.byte(), r.string(), r.string()
	h.epoch, h.role, h.keys = r.uint64(), Role(r.string()), r.string()
	if complete = !r.failed; complete && h.format >= helloSigned {
		h.tick = r.uint64()
		complete = !r.failed
	}
	return h, complete, nil
}

// fieldReader takes fields off the front of a frame; the first that is not
// there makes every later one empty.
type fieldReader struct {
	rest   []byte
	failed bool
}

func (r *fieldReader) take(n int) []byte {
	if r.failed || len(r.rest) < n {
		r.failed = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *fieldReader) byte() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *fieldReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *fieldReader) string() string { return string(r.take(int(r.byte()))) }

// judge compares the other end's hello with ours. It returns the field that
// differs, or "".
func (h hello) judge(other hello, complete bool) *RefusalError {
	refuse := func(field, ours, theirs string) *RefusalError {
		return &RefusalError{Field: field, Ours: ours, Theirs: theirs, Node: other.id}
	}
	switch {
	case other.cluster != h.cluster:
		return refuse(fieldCluster, h.cluster, other.cluster)
	case other.environment != h.environment:
		return refuse(fieldEnvironment, h.environment, other.environment)
	case !complete:
		return refuse(fieldMalformed, "a complete hello", "one cut short")
	case other.format != h.format:
		return refuse(fieldFormat, formatName(h.format), formatName(other.format))
	case !other.role.Valid():
		return refuse(fieldRole, "relay, gate or worker", string(other.role))
	case checkID(other.id) != nil:
		return refuse(fieldID, "letters, digits, '.', '_', '-'", other.id)
	case h.protocol != protocolKeys && !shareKeys(h.keys, other.keys):
		return refuse(fieldKey, h.keys, other.keys)
	}
	return nil
}

// formatName says what a format of the hello means for those who see it refused.
func formatName(format uint8) string {
	switch format {
	case helloFormat:
		return "1 (gossip is not signed)"
	case helloSigned:
		return "2 (gossip is signed)"
	}
	return fmt.Sprint(format)
}

// shareKeys reports whether two members can read each other: each has the key
// that the other one uses.
func shareKeys(ours, theirs string) bool {
	if ours == "" || theirs == "" {
		return ours == theirs
	}
	a, b := strings.Split(ours, ","), strings.Split(theirs, ",")
	return slices.Contains(a, b[0]) && slices.Contains(b, a[0])
}

// vouched compares what a member says of itself with what its certificate says.
func (h hello) vouched(claims *identity.Claims) *RefusalError {
	if claims == nil {
		return nil
	}
	said := [...]string{h.cluster, h.environment, h.id, string(h.role)}
	certified := [...]string{claims.Cluster, claims.Environment, claims.Node, string(claims.Role)}
	if said == certified {
		return nil
	}
	return &RefusalError{Field: fieldCertificate, Ours: strings.Join(certified[:], " "), Theirs: strings.Join(said[:], " "), Node: h.id}
}

// verdict codes on the wire. The acceptor's hello follows, and from it the
// initiator makes the same error with the ends swapped.
var verdictFields = []string{"", fieldCluster, fieldEnvironment, fieldFormat, fieldRole, fieldID, fieldProtocol, fieldMalformed, fieldKey, fieldCertificate, fieldNoCertificate}

func verdictOf(r *RefusalError) byte {
	if r != nil {
		for i, f := range verdictFields {
			if f == r.Field {
				return byte(i)
			}
		}
	}
	return 0
}

// writeFrame sends one length-prefixed frame in a single write.
func writeFrame(w io.Writer, payload []byte) error {
	frame := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(payload)), uint16(len(payload)))
	_, err := w.Write(append(frame, payload...))
	return err
}

// readFrame reads one frame of at most maxHello bytes.
func readFrame(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if length == [2]byte{recordHandshake, tlsMajor} {
		return nil, errTLS
	}
	if n > maxHello {
		return nil, fmt.Errorf("%w: %d bytes announced, %d are allowed", errHello, n, maxHello)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
