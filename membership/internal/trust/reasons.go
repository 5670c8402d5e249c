package trust

// Reasons why packets and messages are dropped: label values of a counter, a closed set.
const (
	DropMessageFormat = "message_format"
	DropMetadata      = "metadata"
	dropUnsigned      = "unsigned"    // not in the form of signed packets
	dropSeal          = "seal"        // sealed with a gossip key that is not installed
	dropStranger      = "stranger"    // from a sender that has not shown a certificate
	dropCertificate   = "certificate" // from a sender whose certificate is refused
	dropSignature     = "signature"   // forged or damaged
	dropReplayed      = "replayed"    // seen before, or too far out of order
	dropStale         = "stale"       // delayed for too long
	dropIncarnation   = "incarnation" // an incarnation that its member has not signed, or that no honest member claims
	dropOld           = "old"         // a statement of a member about itself, older than one that is known
	dropDoubts        = "doubts"      // more doubts about other members than one member may begin
	dropUnproven      = "unproven"    // about an instance that is not proven
	DropForged        = "forged"      // a notice that its author did not sign
	dropTooMany       = "too_many"    // above a limit
	// Above a limit of one certificate: see bounds.go.
	dropStreams   = "too_many_streams"
	dropExchanges = "too_many_exchanges"
	dropSessions  = "too_many_sessions"
	dropShort     = "short_question" // too short for the length of the answers
)

// DropReasons returns the reasons of the guard, some of which membership counts as well.
func DropReasons() []string {
	return []string{
		DropMessageFormat, DropMetadata,
		dropUnsigned, dropSeal, dropStranger, dropCertificate, dropSignature, dropReplayed, dropStale,
		dropIncarnation, dropOld, dropDoubts, dropUnproven, DropForged, dropTooMany, dropStreams, dropExchanges, dropSessions, dropShort,
	}
}

// dropIdle is the reason for what memberlist does not need to receive, and is not counted: it
// happens all the time.
const dropIdle = "idle"
