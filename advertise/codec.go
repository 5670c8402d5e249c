package advertise

import (
	"fmt"
	"math"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership"
)

// recordFormat is the first field of every record. New fields are added only at the end,
// where old readers skip them; the number changes for incompatible changes.
const recordFormat = 1

// wireRecord and wireService are the encoding: msgpack arrays in this order. A
// signed record has one more field, its author's signature. The signature covers
// the encoded bytes of the fields before it, without the head of the array. The head has the number
// of fields, which the signature changes.
type wireRecord struct {
	Format   int
	NodeID   string
	Epoch    uint64
	Sequence uint64
	Services any // []wireService, or the one wireStated of a relay
}

type wireService struct {
	Name     string
	Address  string
	Protocol int
	Weight   int32
	Slots    int32
	State    int
	Version  string
	Tags     []string
	// The fields below were added later; a record may end before any of them.
	Flags     int
	Relays    int32
	Selection string
	Policy    string
}

const (
	recordFields       = 5
	signedFields       = 6
	serviceFields      = 8  // in every record
	serviceFieldsKnown = 12 // in records of this build
	statedFields       = 13 // in the record of a relay
)

// The bits of wireService.Flags. Unknown bits are ignored.
const (
	flagSecured         = 1
	flagProxyProtocolV2 = 2
)

// handle returns the encoding that all messages of this package share.
func handle() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true, PositiveIntUnsigned: true}
	h.StructToArray = true
	return h
}

func encode(v any) ([]byte, error) {
	var out []byte
	if err := codec.NewEncoderBytes(&out, handle()).Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return out, nil
}

// Encode validates the record and returns its unsigned encoding: a msgpack array that
// begins with a format number. With a signature the encoding has at most [MaxRecordBytes].
// The error names the service and the field to change.
func (r Record) Encode() ([]byte, error) {
	wire := wireRecord{Format: recordFormat, NodeID: r.NodeID, Epoch: r.Epoch, Sequence: r.Sequence}
	full := r
	full.Services = make([]Service, len(r.Services))
	for i, s := range r.Services {
		full.Services[i] = s.withDefaults()
	}
	if err := full.validate(); err != nil {
		return nil, err
	}
	var services []wireService
	for _, s := range full.Services {
		services = append(services, wireService{
			Name: s.Name, Address: s.Address, Protocol: index(protocols[:], s.Protocol), Weight: s.Weight,
			Slots: s.Slots, State: index(states[:], s.State), Version: s.Version, Tags: s.Tags,
			Flags: s.flags(), Relays: s.Relays, Selection: s.Selection, Policy: s.Policy,
		})
	}
	if wire.Services = services; r.Relay != nil {
		wire.Services = r.Relay.wire()
	}
	raw, err := encode(wire)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxUnsignedBytes {
		return nil, refuse("too_large", "record of %q takes %d bytes, more than %d: offer fewer services or shorter tags", r.NodeID, len(raw), maxUnsignedBytes)
	}
	return raw, nil
}

// flags returns the value of wireService.Flags.
func (s Service) flags() (flags int) {
	if s.Secured {
		flags |= flagSecured
	}
	if s.ProxyProtocol {
		flags |= flagProxyProtocolV2
	}
	return flags
}

const (
	signedHead = 0x90 | signedFields // the array head of a signed record
	// signatureHead are the bytes before a signature: its type and its length.
	signatureHead    = 2
	maxUnsignedBytes = MaxRecordBytes - signatureHead - membership.MaxSignature
)

// statementOf returns the bytes of an encoded record that its author signs.
func statementOf(unsigned []byte) []byte { return unsigned[1:] }

// withSignature returns the encoding of a signed record.
func withSignature(statement, signature []byte) []byte {
	raw := make([]byte, 0, 1+len(statement)+signatureHead+len(signature))
	raw = append(append(raw, signedHead), statement...)
	return append(append(raw, 0xc4, byte(len(signature))), signature...)
}

// signedPart holds the statement and the signature of a record, as parts of its encoding.
// The signature is empty for an unsigned record.
type signedPart struct{ statement, signature []byte }

// decodeRecord reads a record from the network. It never panics, allocates at most in
// proportion to the input, skips unknown fields, and applies the same limits as Encode. It
// does not check the signature. The record does not share memory with raw.
func decodeRecord(raw []byte) (Record, signedPart, error) {
	if len(raw) > MaxRecordBytes {
		return Record{}, signedPart{}, refuse("too_large", "record of %d bytes: want at most %d", len(raw), MaxRecordBytes)
	}
	r := &reader{rest: raw}
	fields := r.array(math.MaxInt32, "malformed")
	signed := signedPart{statement: r.rest}
	record := readRecordHead(r, fields)
	services := r.array(MaxServices, "services")
	// The bound keeps an input of 1,024 one-byte services from reserving 150 kB.
	record.Services = make([]Service, 0, min(services, len(r.rest)/serviceFields))
	for range services {
		service, stated := readService(r)
		if stated == nil {
			record.Services = append(record.Services, service)
		} else if record.Relay = stated; services > 1 {
			r.fail(refuse("services", "record of %q: %d services beside the statement of a relay", record.NodeID, services-1))
		}
		if r.err != nil {
			break
		}
	}
	signed.statement = signed.statement[:len(signed.statement)-len(r.rest)]
	if fields > recordFields {
		signed.signature = r.optionalBytes(membership.MaxSignature, "signature")
	}
	r.skip(fields - signedFields)
	if err := r.finish(); err != nil {
		return Record{}, signedPart{}, err
	}
	if n := 1 + len(signed.statement); n > maxUnsignedBytes {
		return Record{}, signedPart{}, refuse("too_large", "record of %d bytes without its signature: want at most %d", n, maxUnsignedBytes)
	}
	if err := record.validate(); err != nil {
		return Record{}, signedPart{}, err
	}
	return record, signed, nil
}

// readRecordHead reads the fields before the services.
func readRecordHead(r *reader, fields int) Record {
	format := r.uint()
	if r.err == nil && format != recordFormat {
		r.fail(refuse("format", "record format %d: this build reads %d", format, recordFormat))
	}
	if r.err == nil && fields < recordFields {
		r.fail(errTruncated)
	}
	return Record{NodeID: r.string(MaxNodeIDBytes, "node_id"), Epoch: r.uint(), Sequence: r.uint()}
}

// readService reads one service. In a relay's record it is a filler for earlier releases, and
// the statement follows.
func readService(r *reader) (Service, *RelayStatement) {
	fields := r.array(math.MaxInt32, "malformed")
	if r.err == nil && fields < serviceFields {
		r.fail(errTruncated)
	}
	s := Service{Name: r.string(affinity.MaxServiceName, "name"), Address: r.string(maxAddressBytes, "address")}
	protocol := r.uint()
	s.Weight, s.Slots = r.smallInt(), r.smallInt()
	state := r.uint()
	s.Version = r.string(maxVersionBytes, "version")
	if tags := r.array(maxTags, "tags"); tags > 0 {
		s.Tags = make([]string, 0, tags)
		for range tags {
			s.Tags = append(s.Tags, r.string(maxTagBytes, "tags"))
		}
	}
	if protocol >= uint64(len(protocols)) {
		r.fail(refuse("protocol", "service %q: protocol number %d is not known", s.Name, protocol))
	} else {
		s.Protocol = protocols[protocol]
	}
	if state >= uint64(len(states)) {
		r.fail(refuse("state", "service %q: state number %d is not known", s.Name, state))
	} else {
		s.State = states[state]
	}
	if fields > serviceFields {
		flags := r.uint()
		s.Secured, s.ProxyProtocol = flags&flagSecured != 0, flags&flagProxyProtocolV2 != 0
	}
	if fields > serviceFields+1 {
		s.Relays = r.smallInt()
	}
	if fields > serviceFields+2 {
		s.Selection = r.string(maxSelection, "selection")
	}
	if fields > serviceFields+3 {
		s.Policy = r.string(maxPolicy, "policy")
	}
	var stated *RelayStatement
	if fields > serviceFieldsKnown {
		stated = readStatement(r)
	}
	r.skip(fields - statedFields)
	return s, stated
}

func index[T comparable](all []T, one T) int {
	for i, v := range all {
		if v == one {
			return i
		}
	}
	return -1
}

// Normalize returns the service with its defaults, and the error that Offer would return.
func (s Service) Normalize() (Service, error) {
	s = s.withDefaults()
	return s, s.validate()
}
