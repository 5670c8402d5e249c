package membership

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// helloTimeout bounds the whole exchange: a stranger that connects and says
// nothing holds a descriptor no longer than this.
const helloTimeout = 3 * time.Second

// greeting is one exchange of hellos.
type greeting struct {
	hello
	// conn is the connection, over TLS when there are certificates.
	conn net.Conn
	// claims are what the other end's certificate says, nil without one; chain is
	// the certificate and those above it, as DER.
	claims *identity.Claims
	chain  [][]byte
}

// greet is the initiator's half. A refusal by either end is a *RefusalError.
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
	if len(answer) == 1 && verdict == verdictOf(&RefusalError{Field: fieldNoCertificate}) {
		return Peer{}, (&RefusalError{Field: fieldNoCertificate,
			Cause: fmt.Errorf("%s takes members with certificates only: give this one --tls-cert, --tls-key and --tls-ca", conn.RemoteAddr())}).at(conn)
	}
	other, complete, err := decodeHello(answer[1:])
	if err != nil {
		return Peer{}, fmt.Errorf("read hello of %s: %w", conn.RemoteAddr(), err)
	}
	if refusal := cmp.Or(h.judge(other, complete), other.vouched(h.claims), h.agreed(protocol, other.id)); refusal != nil {
		return Peer{}, refusal.at(conn)
	}
	if verdict != 0 {
		return Peer{}, h.refusedBy(other, verdict).at(conn)
	}
	return h.peer(other), conn.SetDeadline(time.Time{})
}

// admit is the acceptor's half. It answers in every case in which the other end
// said enough to be answered.
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
	refusal := cmp.Or(h.judge(other, complete), other.vouched(h.claims), h.agreed(other.protocol, other.id))
	if refusal == nil && !serves(other.protocol) {
		refusal = &RefusalError{Field: fieldProtocol, Ours: "one that this member serves", Theirs: other.protocol, Node: other.id}
	}
	answer := h.append([]byte{verdictOf(refusal)})
	if err := writeFrame(conn, answer); err != nil {
		return Peer{}, "", fmt.Errorf("answer hello of %s: %w", conn.RemoteAddr(), err)
	}
	if refusal != nil {
		return Peer{}, "", refusal.at(conn)
	}
	return h.peer(other), other.protocol, conn.SetDeadline(time.Time{})
}

// refuseClearText answers a hello that came in clear text where TLS was expected, and
// says why. Any other error is returned as it is.
func refuseClearText(conn net.Conn, err error) error {
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	if !ok || string(record.RecordHeader[2:]) != helloMagic { // behind the length
		return err
	}
	if conn.SetDeadline(time.Now().Add(helloTimeout)) == nil &&
		writeFrame(conn, []byte{verdictOf(&RefusalError{Field: fieldNoCertificate})}) == nil {
		// Closing with bytes unread would tear the answer down.
		_, _ = io.CopyN(io.Discard, conn, maxHello)
	}
	return (&RefusalError{Field: fieldNoCertificate,
		Cause: fmt.Errorf("the member at %s shows no certificate: give it --tls-cert, --tls-key and --tls-ca", conn.RemoteAddr())}).at(conn)
}

// agreed refuses a protocol that is not the one that TLS agreed on: what a hello names
// has to be what the handshake was made for. Without TLS the hello alone says it.
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

// refusedBy turns the other end's verdict into the error this end reports.
func (h hello) refusedBy(other hello, verdict byte) *RefusalError {
	r := &RefusalError{Field: fieldMalformed, Ours: "our hello", Theirs: fmt.Sprintf("verdict %d", verdict), Node: other.id}
	if int(verdict) >= len(verdictFields) {
		return r
	}
	r.Field = verdictFields[verdict]
	switch r.Field {
	case fieldFormat:
		r.Ours, r.Theirs = formatName(h.format), formatName(other.format)
	case fieldRole:
		r.Ours, r.Theirs = string(h.role), "relay, gate or worker"
	case fieldID:
		r.Ours, r.Theirs = h.id, "letters, digits, '.', '_', '-'"
	case fieldKey:
		r.Ours, r.Theirs = h.keys, other.keys
	case fieldCertificate:
		r.Ours, r.Theirs = "what this member says of itself", "what its certificate says"
	case fieldProtocol:
		r.Ours, r.Theirs = h.protocol, "one that the other member serves"
	}
	return r
}

func (e *RefusalError) at(conn net.Conn) *RefusalError {
	e.Addr = conn.RemoteAddr().String()
	return e
}
