package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Reason is why a peer was refused. The set is closed, so a reason can be a label of a metric.
type Reason string

// The reasons.
const (
	// reasonCluster and reasonEnvironment: the peer belongs to another cluster.
	reasonCluster     Reason = "cluster"
	reasonEnvironment Reason = "environment"
	// reasonRole, reasonDatacenter and reasonNode: the certificate differs from what was expected,
	// for example from the member's gossip; or the role may not connect here at all.
	reasonRole       Reason = "role"
	reasonDatacenter Reason = "datacenter"
	reasonNode       Reason = "node"
	// reasonMatrix: the connection matrix does not list the connection.
	reasonMatrix Reason = "matrix"
	// reasonExpired and reasonNotYetValid: the certificate is not valid now, or a clock is wrong.
	reasonExpired     Reason = "expired"
	reasonNotYetValid Reason = "not_yet_valid"
	// reasonUnknownAuthority: no chain leads to one of our authorities.
	reasonUnknownAuthority Reason = "unknown_authority"
	// reasonKeyUsage: the certificate is not for this side of a TLS connection.
	reasonKeyUsage Reason = "key_usage"
	// reasonNoCertificate: the peer has shown no certificate.
	reasonNoCertificate Reason = "no_certificate"
	// reasonDenied: the serial number or node is on our deny list.
	reasonDenied Reason = "denied"
	// reasonMalformed: the names in the certificate are not valid claims.
	reasonMalformed Reason = "malformed"
)

var reasons = [...]Reason{
	reasonCluster, reasonEnvironment, reasonRole, reasonDatacenter, reasonNode, reasonMatrix,
	reasonExpired, reasonNotYetValid, reasonUnknownAuthority, reasonKeyUsage, reasonNoCertificate, reasonDenied, reasonMalformed,
}

// Reasons lists all reasons, for metrics.
func Reasons() []Reason { return slices.Clone(reasons[:]) }

// RefusalError is why a peer was refused. It has the form of the refusals of package
// membership, so that both look the same in a log.
type RefusalError struct {
	// Field is what differs: the reason.
	Field Reason
	// Ours and Theirs are the two values, if two values were compared.
	Ours, Theirs string
	// Node is the peer's id according to its certificate. With the reasons expired, not_yet_valid,
	// unknown_authority, key_usage and malformed it is not verified; it is only for the log.
	Node string
	// Addr is the peer's address; empty if it is not known.
	Addr string
	// Cause is the problem of the certificate; nil if Ours and Theirs are sufficient.
	Cause error
}

// Error reads: cluster mismatch: ours "staging", theirs "prod" (relay-7, 10.0.1.5:7400): give both a
// certificate of one cluster
func (e *RefusalError) Error() string {
	var text string
	switch {
	case e.Field == reasonMatrix:
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
		text += fmt.Sprintf(" (%s, %s)", e.Node, e.Addr)
	case e.Node != "" || e.Addr != "":
		text += fmt.Sprintf(" (%s)", e.Node+e.Addr)
	}
	if e.Cause == nil && (e.Field == reasonCluster || e.Field == reasonEnvironment) {
		text += fmt.Sprintf(": give both a certificate of one %s", e.Field)
	}
	return text
}

// Unwrap returns the cause for errors.Is and errors.As.
func (e *RefusalError) Unwrap() error { return e.Cause }

// reasonOf returns the reason of a handshake's error, or false if it is not a refusal by
// this process. A refusal by the peer arrives as a TLS alert and has no reason.
func reasonOf(err error) (Reason, bool) {
	var refusal *RefusalError
	if !errors.As(err, &refusal) {
		return "", false
	}
	return refusal.Field, true
}
