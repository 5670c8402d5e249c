package membership

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// The hello is the first message on every stream, in both directions, before memberlist or
// any other protocol:
//
//	initiator ──► length u16, "RWY", cluster, environment, format u8, protocol, id, epoch u64, role, keys, tick u64
//	acceptor  ──► verdict (0 ok, else a refusal) and its own hello
//
// Format 2 is that of members with certificates: they sign their gossip, and the tick
// carries the sender's time (see package trust). A member that does not sign is refused, because
// its gossip would not count.
//
// An acceptor with a certificate answers a hello in clear text also in clear text, with the
// verdict no_certificate and without its own hello, because its names are for members only.
//
// A string is a length byte and that many bytes. Cluster and environment come first and are
// checked before the rest is decoded, so that a process of another cluster learns the
// reason of the refusal, whatever else its build sends. Unknown bytes at the end are
// skipped.
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
	protocolProbe      = "probe/1" // hellos only: checks whether this member can join the other
)

type hello struct {
	cluster     string
	environment string
	format      uint8
	protocol    string
	id          string
	epoch       uint64
	role        identity.Role
	keys        string // fingerprints of the gossip keys, the primary one first, with commas; empty without keys
	tick        uint64 // the sender's time, in format 2
}

var errHello = errors.New("malformed hello")

// A TLS handshake begins with these two bytes. Read as a length, they exceed maxHello.
const recordHandshake, tlsMajor = 0x16, 3

var errTLS = errors.New("a TLS handshake where a hello was expected")

func (h hello) append(b []byte) []byte {
	b = append(b, helloMagic...)
	b = gossip.AppendText(b, h.cluster)
	b = gossip.AppendText(b, h.environment)
	b = append(b, h.format)
	b = gossip.AppendText(b, h.protocol)
	b = gossip.AppendText(b, h.id)
	b = binary.BigEndian.AppendUint64(b, h.epoch)
	b = gossip.AppendText(b, string(h.role))
	b = gossip.AppendText(b, h.keys)
	return binary.BigEndian.AppendUint64(b, h.tick)
}

// decodeHello reads a hello in two steps. A nil error with complete=false means that cluster
// and environment were read but the rest was not understood: enough to refuse, not enough to
// admit.
func decodeHello(b []byte) (h hello, complete bool, err error) {
	if len(b) < len(helloMagic) || string(b[:len(helloMagic)]) != helloMagic {
		return h, false, fmt.Errorf("%w: it does not begin with %q: is the other end a Ringway member?", errHello, helloMagic)
	}
	r := &gossip.FieldReader{Rest: b[len(helloMagic):]}
	h.cluster, h.environment = r.Text(), r.Text()
	if r.Failed {
		return h, false, fmt.Errorf("%w: cluster and environment are cut short", errHello)
	}
	h.format, h.protocol, h.id = r.Byte(), r.Text(), r.Text()
	h.epoch, h.role, h.keys = r.Uint64(), identity.Role(r.Text()), r.Text()
	if complete = !r.Failed; complete && h.format >= helloSigned {
		h.tick = r.Uint64()
		complete = !r.Failed
	}
	return h, complete, nil
}

// compare compares the peer's hello with this one. It returns a refusal with the first field
// that differs, or nil.
func (h hello) compare(other hello, complete bool) *RefusalError {
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
	case !other.role.Member():
		return refuse(fieldRole, "relay, gate, worker or observer", string(other.role))
	case identity.CheckName(other.id) != nil:
		return refuse(fieldID, "letters, digits, '.', '_', '-'", other.id)
	case h.protocol != protocolKeys && !shareKeys(h.keys, other.keys):
		return refuse(fieldKey, h.keys, other.keys)
	}
	return nil
}

// formatName describes a format of the hello, for refusals.
func formatName(format uint8) string {
	switch format {
	case helloFormat:
		return "1 (gossip is not signed)"
	case helloSigned:
		return "2 (gossip is signed)"
	}
	return fmt.Sprint(format)
}

// shareKeys reports whether two members can decrypt each other's packets: each has the key
// that the other one uses. During a rotation two members may use different keys for some time,
// which is no difference that separates them.
func shareKeys(ours, theirs string) bool {
	if ours == "" || theirs == "" {
		return ours == theirs
	}
	a, b := strings.Split(ours, ","), strings.Split(theirs, ",")
	return slices.Contains(a, b[0]) && slices.Contains(b, a[0])
}

// checkCertificate compares the hello with the claims of the sender's certificate.
func (h hello) checkCertificate(claims *identity.Claims) *RefusalError {
	if claims == nil {
		return nil
	}
	stated := [...]string{h.cluster, h.environment, h.id, string(h.role)}
	certified := [...]string{claims.Cluster, claims.Environment, claims.Node, string(claims.Role)}
	if stated == certified {
		return nil
	}
	return &RefusalError{Field: fieldCertificate, Ours: strings.Join(certified[:], " "), Theirs: strings.Join(stated[:], " "), Node: h.id}
}

// answerFields are the verdict codes on the wire. The acceptor's hello follows the verdict;
// from it the initiator makes the same error with the two sides swapped.
var answerFields = []string{"", fieldCluster, fieldEnvironment, fieldFormat, fieldRole, fieldID, fieldProtocol, fieldMalformed, fieldKey, fieldCertificate, fieldNoCertificate}

func answerOf(r *RefusalError) byte {
	if r != nil {
		for i, f := range answerFields {
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

// helloTimeout limits the whole exchange: a stranger that connects and sends nothing occupies
// a descriptor no longer than this.
const helloTimeout = 3 * time.Second

// greeting is one exchange of hellos.
type greeting struct {
	hello
	// conn is the connection, over TLS if there are certificates.
	conn net.Conn
	// claims of the peer's certificate, nil without one; chain is the certificate
	// and those above it, as DER.
	claims *identity.Claims
	chain  [][]byte
}

// greet is the initiator's side. A refusal by either side is a *RefusalError. The own comparison
// comes before the verdict of the other side: its error has both values, the verdict only the
// field.
func (h greeting) greet(ctx context.Context, protocol string) (Peer, error) {
	h.protocol = protocol
	conn := h.conn
	deadline := time.Now().Add(helloTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return Peer{}, err
	}
	if err := writeFrame(conn, h.append(nil)); err != nil {
		return Peer{}, fmt.Errorf("send hello to %s: %w", conn.RemoteAddr(), err)
	}
	answer, err := readFrame(conn)
	if err != nil {
		return Peer{}, fmt.Errorf("read hello of %s: %w", conn.RemoteAddr(), err)
	}
	if len(answer) == 0 {
		return Peer{}, fmt.Errorf("read hello of %s: %w: empty", conn.RemoteAddr(), errHello)
	}
	verdict := answer[0]
	if len(answer) == 1 && verdict == answerOf(&RefusalError{Field: fieldNoCertificate}) {
		return Peer{}, (&RefusalError{Field: fieldNoCertificate,
			Cause: fmt.Errorf("%s takes members with certificates only: give this one --tls-cert, --tls-key and --tls-ca", conn.RemoteAddr())}).at(conn)
	}
	other, complete, err := decodeHello(answer[1:])
	if err != nil {
		return Peer{}, fmt.Errorf("read hello of %s: %w", conn.RemoteAddr(), err)
	}
	if refusal := cmp.Or(h.compare(other, complete), other.checkCertificate(h.claims), h.agreed(protocol, other.id)); refusal != nil {
		return Peer{}, refusal.at(conn)
	}
	if verdict != 0 {
		return Peer{}, h.refusedBy(other, verdict).at(conn)
	}
	return h.peer(other), conn.SetDeadline(time.Time{})
}

// admit is the acceptor's side. It answers whenever it received enough of the hello for an
// answer.
func (h greeting) admit(serves func(protocol string) bool) (Peer, string, error) {
	conn := h.conn
	if err := conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return Peer{}, "", err
	}
	frame, err := readFrame(conn)
	if errors.Is(err, errTLS) {
		return Peer{}, "", (&RefusalError{Field: fieldUnexpectedTLS,
			Cause: fmt.Errorf("%s speaks TLS, and this member has no certificate: give both --tls-cert, --tls-key and --tls-ca, or neither", conn.RemoteAddr())}).at(conn)
	}
	if err != nil {
		return Peer{}, "", fmt.Errorf("read hello of %s: %w", conn.RemoteAddr(), err)
	}
	other, complete, err := decodeHello(frame)
	if err != nil {
		return Peer{}, "", fmt.Errorf("read hello of %s: %w", conn.RemoteAddr(), err)
	}
	h.protocol = other.protocol
	refusal := cmp.Or(h.compare(other, complete), other.checkCertificate(h.claims), h.agreed(other.protocol, other.id))
	if refusal == nil && !serves(other.protocol) {
		refusal = &RefusalError{Field: fieldProtocol, Ours: "one that this member serves", Theirs: other.protocol, Node: other.id}
	}
	answer := h.append([]byte{answerOf(refusal)})
	if err := writeFrame(conn, answer); err != nil {
		return Peer{}, "", fmt.Errorf("answer hello of %s: %w", conn.RemoteAddr(), err)
	}
	if refusal != nil {
		return Peer{}, "", refusal.at(conn)
	}
	return h.peer(other), other.protocol, conn.SetDeadline(time.Time{})
}

// refuseClearText answers a hello that came in clear text where TLS was expected, and
// states why. Any other error is returned as it is.
func refuseClearText(conn net.Conn, err error) error {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || string(record.RecordHeader[2:]) != helloMagic { // after the length
		return err
	}
	if conn.SetDeadline(time.Now().Add(helloTimeout)) == nil &&
		writeFrame(conn, []byte{answerOf(&RefusalError{Field: fieldNoCertificate})}) == nil {
		// Closing the connection with unread bytes would reset it before the answer arrives.
		_, _ = io.CopyN(io.Discard, conn, maxHello)
	}
	return (&RefusalError{Field: fieldNoCertificate,
		Cause: fmt.Errorf("the member at %s shows no certificate: give it --tls-cert, --tls-key and --tls-ca", conn.RemoteAddr())}).at(conn)
}

// agreed refuses a protocol other than the one that TLS negotiated: the hello must name the
// protocol for which the handshake was made. Without TLS the hello alone decides.
func (h greeting) agreed(protocol, node string) *RefusalError {
	secured, ok := h.conn.(*tls.Conn)
	if !ok {
		return nil
	}
	if alpn := secured.ConnectionState().NegotiatedProtocol; alpn != protocol {
		return &RefusalError{Field: fieldProtocol, Ours: alpn + ", agreed on in TLS", Theirs: protocol, Node: node}
	}
	return nil
}

func (h greeting) peer(other hello) Peer {
	return Peer{ID: other.id, Epoch: other.epoch, Role: other.role, Certified: h.claims != nil, Addr: h.conn.RemoteAddr().String(), tick: other.tick}
}

// refusedBy converts the peer's verdict into the error that this side reports.
func (h hello) refusedBy(other hello, verdict byte) *RefusalError {
	r := &RefusalError{Field: fieldMalformed, Ours: "our hello", Theirs: fmt.Sprintf("verdict %d", verdict), Node: other.id}
	if int(verdict) >= len(answerFields) {
		return r
	}
	r.Field = answerFields[verdict]
	switch r.Field {
	case fieldFormat:
		r.Ours, r.Theirs = formatName(h.format), formatName(other.format)
	case fieldRole:
		r.Ours, r.Theirs = string(h.role), "relay, gate, worker or observer"
	case fieldID:
		r.Ours, r.Theirs = h.id, "letters, digits, '.', '_', '-'"
	case fieldKey:
		r.Ours, r.Theirs = h.keys, other.keys
	case fieldCertificate:
		r.Ours, r.Theirs = "the hello of this member", "its certificate"
	case fieldProtocol:
		r.Ours, r.Theirs = h.protocol, "one that the other member serves"
	}
	return r
}

func (e *RefusalError) at(conn net.Conn) *RefusalError {
	e.Addr = conn.RemoteAddr().String()
	return e
}
