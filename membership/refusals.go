package membership

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ringway/ringway/internal/handshake"
	"github.com/ringway/ringway/membership/identity"
)

// RefusalError is why one member refuses another. The hello at the beginning of every stream
// produces it, at both ends with the sides swapped.
type RefusalError struct {
	// Field is what differs: cluster, environment, format, role, id, protocol, gossip key (the
	// fingerprints are compared), certificate (its content differs from its holder's hello),
	// no_certificate and unexpected_tls (only one of the two has certificates).
	Field string
	// Ours and Theirs are the two values, from the view of the side that holds the error.
	Ours, Theirs string
	// Node and Addr identify the other end.
	Node, Addr string
	// Cause is the error of the other end's certificate, if that is the reason.
	Cause error
}

// Error reads: cluster mismatch: ours "staging", theirs "prod" (relay-7, 10.0.1.5:7400): give both
// the same --cluster, or correct --join
func (e *RefusalError) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	text := fmt.Sprintf("%s mismatch: ours %q, theirs %q (%s, %s)", e.Field, e.Ours, e.Theirs, e.Node, e.Addr)
	if remedy := remedies[e.Field]; remedy != "" {
		text += ": " + remedy
	}
	return text
}

// Unwrap returns the cause for errors.Is and errors.As.
func (e *RefusalError) Unwrap() error { return e.Cause }

// The fields that a hello can be refused for. They are label values of a metric, so the set is
// closed.
const (
	fieldCluster     = "cluster"
	fieldEnvironment = "environment"
	fieldFormat      = "format"
	fieldRole        = "role"
	fieldID          = "id"
	fieldProtocol    = "protocol"
	fieldMalformed   = "malformed"
	fieldKey         = "gossip key"
	fieldCertificate = "certificate"
	// fieldNoCertificate: the initiator uses clear text, and the acceptor has a certificate.
	// fieldUnexpectedTLS: the other way round.
	fieldNoCertificate = "no_certificate"
	fieldUnexpectedTLS = "unexpected_tls"
	// fieldTooMany: more members than the limit allows.
	fieldTooMany = "too_many_members"
	// fieldSilent: a stream for gossip keys on which no request came, or that gave way to newer ones.
	fieldSilent = "silent"
)

var refusalFields = [...]string{
	fieldCluster, fieldEnvironment, fieldFormat, fieldRole, fieldID, fieldProtocol,
	fieldMalformed, fieldKey, fieldCertificate, fieldTooMany, fieldNoCertificate, fieldUnexpectedTLS, fieldSilent,
}

// remedies end the texts of refusals for which both sides get the same text.
var remedies = map[string]string{
	fieldCluster:     "give both the same --cluster, or correct --join",
	fieldEnvironment: "give both the same --environment, or correct --join",
	fieldFormat:      "run releases on both that understand each other",
	fieldKey:         "give both the same key in --gossip-key-file",
	fieldCertificate: "correct --cluster, --environment or --id, or issue another certificate",
}

const (
	// maxRefusals limits the memory that strangers can use.
	maxRefusals = 256
	// refusalQuiet is the least time between two log lines about one address and one cause.
	refusalQuiet = time.Minute
	// maxRefusalLines limits the log lines per refusalQuiet that incoming connections can
	// cause, from all hosts together, and those that outgoing ones can cause.
	maxRefusalLines = 10
)

// refusals decides which refusals are logged as warnings, and stores the last refusal by address
// for outgoing connections: memberlist reduces the errors of a join to text, and this is where
// joinAny finds the typed reason.
type refusals struct {
	mu       sync.Mutex
	byAddr   map[string]recordedRefusal
	outgoing lineBudget

	// For incoming connections: a host and a kind, because a stranger chooses everything else. A
	// second cause on a host gets a line of its own.
	inbound  map[refusalKey]*refusedHost
	incoming lineBudget
}

// lineBudget limits the log lines of one direction, so that the other one keeps its lines.
type lineBudget struct {
	minute   time.Time // start of the interval in which lines are counted
	lines    int
	unlogged int // refusals without a line since the last line
}

// take reports whether a refusal gets a line, and how many before it got none. quiet is true for
// one whose address and cause had a line lately.
func (b *lineBudget) take(now time.Time, quiet bool) (worthLine bool, unlogged int) {
	if now.Sub(b.minute) >= refusalQuiet {
		b.minute, b.lines = now, 0
	}
	if quiet || b.lines >= maxRefusalLines {
		b.unlogged++
		return false, 0
	}
	b.lines++
	unlogged, b.unlogged = b.unlogged, 0
	return true, unlogged
}

type refusalKey struct {
	host netip.Prefix
	refusalKind
}

// refusalKind is one of a closed set, so that a stranger cannot make up others. A certificate that
// is denied and one that is malformed are of two kinds: many workers may run at one host.
type refusalKind struct {
	field  string          // one of refusalFields
	reason identity.Reason // of a certificate that this side refuses
}

func (e *RefusalError) kind() refusalKind {
	kind := refusalKind{field: e.Field}
	if certificate, ok := errors.AsType[*identity.RefusalError](e.Cause); ok {
		kind.reason = certificate.Field
	}
	return kind
}

// refusedHost is what happened at one host for one reason.
type refusedHost struct {
	logged time.Time // when it was last worth a line
	Refused
}

// Refused are processes at one host that this node refused as members for one reason.
type Refused struct {
	// Host is their address, for IPv6 a /64 network.
	Host string
	// Field is what differs, as in RefusalError; Err is the newest error.
	Field string
	Err   error
	// Count is how often they were refused, the last time at Last. It starts again when none was
	// for ten minutes.
	Count int
	Last  time.Time
}

// refusedFor is how long Refused remembers.
const refusedFor = 10 * time.Minute

// Refused lists the processes that this node has refused in the last ten minutes, by host and
// reason, of at most 256. What does not speak the protocol of members, such as a port scan, is not
// among them.
func (n *Node) Refused() []Refused { return n.transport.refusals.list() }

func (r *refusals) list() (out []Refused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.inbound {
		if one.Field != fieldMalformed && time.Since(one.Last) < refusedFor {
			out = append(out, one.Refused)
		}
	}
	slices.SortFunc(out, func(a, b Refused) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Field, b.Field), a.Last.Compare(b.Last))
	})
	return out
}

type recordedRefusal struct {
	err    *RefusalError // nil if the last attempt failed for another reason
	kind   refusalKind
	logged time.Time
}

// record stores the refusal of an outgoing connection. It reports whether the refusal should be
// logged as a warning, and how many refusals since the last warning were not. The newest refusal is
// stored even if it is not logged, because joinAny looks for its reason.
func (r *refusals) record(addr string, err *RefusalError) (worthLine bool, unlogged int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byAddr == nil {
		r.byAddr = make(map[string]recordedRefusal)
	}
	now := time.Now()
	old, known := r.byAddr[addr]
	one := recordedRefusal{err: err, kind: err.kind()}
	if known && old.kind == one.kind {
		one.logged = old.logged
	}
	if worthLine, unlogged = r.outgoing.take(now, now.Sub(one.logged) < refusalQuiet); worthLine {
		one.logged = now
	}
	makeRoom(r.byAddr, known)
	r.byAddr[addr] = one
	return worthLine, unlogged
}

// add counts the refusal of an incoming connection. It reports whether the refusal should be logged
// as a warning, and how many refusals since the last warning were not. Two limits apply: one line a
// minute for each host and kind, and maxRefusalLines for all, since a stranger may have many hosts.
func (r *refusals) add(addr string, err *RefusalError) (worthLine bool, unlogged int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	from, _ := netip.ParseAddrPort(addr) // the zero value for others, which count as one host
	key := refusalKey{handshake.SourceOf(from.Addr()), err.kind()}
	one, known := r.inbound[key]
	if !known {
		if r.inbound == nil {
			r.inbound = make(map[refusalKey]*refusedHost)
		}
		makeRoom(r.inbound, known)
		one = &refusedHost{Refused: Refused{Host: strings.TrimSuffix(key.host.String(), "/32"), Field: err.Field}}
		r.inbound[key] = one
	}
	if now.Sub(one.Last) >= refusedFor {
		one.Count = 0
	}
	one.Err, one.Last = err, now
	one.Count++
	if worthLine, unlogged = r.incoming.take(now, now.Sub(one.logged) < refusalQuiet); worthLine {
		one.logged = now
	}
	return worthLine, unlogged
}

// makeRoom removes an entry if the map has maxRefusals entries and a new one is about to be added.
// Any entry will do, because only the newest is needed.
func makeRoom[K comparable, V any](m map[K]V, known bool) {
	if known || len(m) < maxRefusals {
		return
	}
	for key := range m {
		delete(m, key)
		return
	}
}

func (r *refusals) get(addr string) *RefusalError {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byAddr[addr].err
}

// outlived forgets why an address refused this node: it does not answer any more. When it was
// logged stays, because an address may refuse and fail in turn.
func (r *refusals) outlived(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, known := r.byAddr[addr]; known {
		one.err = nil
		r.byAddr[addr] = one
	}
}

func (r *refusals) clear(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byAddr, addr)
}

// logRefusal writes one line, at warn level if the refusal should be seen.
func (t *transport) logRefusal(direction, addr string, err *RefusalError) {
	level, args := slog.LevelDebug, []any{"direction", direction, "err", err}
	worthLine, unlogged := false, 0
	if direction == inbound {
		worthLine, unlogged = t.refusals.add(addr, err)
	} else {
		worthLine, unlogged = t.refusals.record(addr, err)
	}
	if worthLine {
		level = slog.LevelWarn
	}
	if unlogged > 0 {
		args = append(args, "refused_since_last_line", unlogged)
	}
	t.logger.Log(t.ctx, level, "member refused", args...)
}
