package membership

import (
	"fmt"
)

// RefusalError says why two members do not belong together. The hello that
// begins every stream produces it, on both ends with the ends swapped.
type RefusalError struct {
	// Field is what differs: cluster, environment, format, role, id, protocol,
	// gossip key (the fingerprints are compared), certificate (what it says
	// against what its holder says), no_certificate and unexpected_tls (only one of
	// the two has certificates).
	Field string
	// Ours and Theirs are the two values, as the end that holds the error sees
	// them.
	Ours, Theirs string
	// Node and Addr name the other end.
	Node, Addr string
	// Cause is what is wrong with the other end's certificate, when that is why.
	Cause error
}

// Error reads: cluster mismatch: ours "staging", theirs "prod" (relay-7, 10.0.1.5:7400)
func (e *RefusalError) Error() string {
	if e.Cause != nil {
		return e.Cause.Error()
	}
	return fmt.Sprintf("%s mismatch: ours %q, theirs %q (%s, %s)", e.Field, e.Ours, e.Theirs, e.Node, e.Addr)
}

// Unwrap gives the cause to errors.Is and errors.As.
func (e *RefusalError) Unwrap() error { return e.Cause }

// Permanent reports whether trying again cannot help until somebody changes a
// setting.
func (e *RefusalError) Permanent() bool {
	return e.Field == fieldCluster || e.Field == fieldEnvironment
}

// The fields that a hello is judged by. They are label values of a metric, so
// the set is closed.
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
	// fieldNoCertificate: the one who dialled speaks clear text, and the other has a
	// certificate. fieldUnexpectedTLS: the other way round.
	fieldNoCertificate = "no_certificate"
	fieldUnexpectedTLS = "unexpected_tls"
	// fieldTooMany: more members than the limit allows.
	fieldTooMany = "too_many_members"
)

var refusalFields = [...]string{
	fieldCluster, fieldEnvironment, fieldFormat, fieldRole, fieldID, fieldProtocol,
	fieldMalformed, fieldKey, fieldCertificate, fieldTooMany, fieldNoCertificate, fieldUnexpectedTLS,
}
