package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Reason is why an end was refused. The set is closed, so it can be a label of a
// metric.
type Reason string

// The reasons.
const (
	// ReasonCluster and ReasonEnvironment: it belongs elsewhere.
	ReasonCluster     Reason = "cluster"
	ReasonEnvironment Reason = "environment"
	// ReasonRole, ReasonDatacenter and ReasonNode: the certificate disagrees with
	// what was expected, for example with what the member gossips; or the role
	// has no business here at all.
	ReasonRole       Reason = "role"
	ReasonDatacenter Reason = "datacenter"
	ReasonNode       Reason = "node"
	// ReasonMatrix: the connection matrix does not list the connection.
	ReasonMatrix Reason = "matrix"
	// ReasonExpired and ReasonNotYetValid: the certificate, or the clock.
	ReasonExpired     Reason = "expired"
	ReasonNotYetValid Reason = "not_yet_valid"
	// ReasonUnknownAuthority: no chain leads to one of our authorities.
	ReasonUnknownAuthority Reason = "unknown_authority"
	// ReasonKeyUsage: the certificate is not for this side of a TLS connection.
	ReasonKeyUsage Reason = "key_usage"
	// ReasonNoCertificate: none was shown.
	ReasonNoCertificate Reason = "no_certificate"
	// ReasonDenied: its serial number or node is on our deny list.
	ReasonDenied Reason = "denied"
	// ReasonMalformed: the names in the certificate do not say who its holder is.
	ReasonMalformed Reason = "malformed"
)

var reasons = [...]Reason{
	ReasonCluster, ReasonEnvironment, ReasonRole, ReasonDatacenter, ReasonNode, ReasonMatrix,
	ReasonExpired, ReasonNotYetValid, ReasonUnknownAuthority, ReasonKeyUsage, ReasonNoCertificate, ReasonDenied, ReasonMalformed,
}

// Reasons lists all of them, for metrics.
func Reasons() []Reason { return slices.Clone(reasons[:]) }

// RefusalError says why an end was refused. It has the form of the refusals of
// package membership, so that both read the same in a log.
type RefusalError struct {
	// Field is what differs; it is the reason.
	Field Reason
	// Ours and Theirs are the two values, where two values were compared.
	Ours, Theirs string
	// Node is the other end's id as its certificate has it. With the reasons
	// expired, not_yet_valid, unknown_authority, key_usage and malformed nobody
	// vouches for it; it is there for the log.
	Node string
	// Addr is the other end's address; empty when it is not known.
	Addr string
	// Cause is what is wrong with the certificate; nil where Ours and Theirs
	// say everything.
	Cause error
}

// Error reads: cluster mismatch: ours "staging", theirs "prod" (relay-7, 10.0.1.5:7400)
func (e *RefusalError) Error() string {
	var text string
	switch {
	case e.Field == ReasonMatrix:
		text = fmt.Sprintf("connection not allowed: ours %q, theirs %q", e.Ours, e.Theirs)
		if e.Cause != nil {
			text += ": " + e.Cause.Error()
		}
	case e.Cause != nil:
		text = fmt.Sprintf("certificate refused: %s: %v", strings.ReplaceAll(string(e.Field), "_", " "), e.Cause)
	default:
		text = fmt.Sprintf("%s mismatch: ours %q, theirs %q", e.Field, e.Ours, e.Theirs)
	}
	switch {
	case e.Node != "" && e.Addr != "":
		return fmt.Sprintf("%s (%s, %s)", text, e.Node, e.Addr)
	case e.Node != "" || e.Addr != "":
		return fmt.Sprintf("%s (%s)", text, e.Node+e.Addr)
	}
	return text
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *RefusalError) Unwrap() error { return e.Cause }

// Disagreement reports whether the certificate is good but says another id, role
// or datacenter than was expected: a member whose gossip is not to be believed.
func (e *RefusalError) Disagreement() bool {
	return e.Field == ReasonNode || e.Field == ReasonRole || e.Field == ReasonDatacenter
}

// ReasonOf returns the reason of a handshake's error, or false when it is not a
// refusal of ours. The other end's refusal is not: it arrives as a TLS alert.
func ReasonOf(err error) (Reason, bool) {
	var refusal *RefusalError
	if !errors.As(err, &refusal) {
		return "", false
	}
	return refusal.Field, true
}
