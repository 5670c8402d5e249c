package advertise

import (
	"fmt"
	"math"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// recordFormat leads every record. Fields are only ever added at the end, which
// old readers skip; the number changes when that is not enough.
const recordFormat = 1

// wireRecord and wireService are the encoding: msgpack arrays in this order. The
// next field of a record is reserved for a signature over the ones before it.
type wireRecord struct {
	Format   int
	NodeID   string
	Epoch    uint64
	Sequence uint64
	Services []wireService
}

type wireService struct {
	Name     string
	Address  string
	Protocol int
	Weight   int
	Slots    int
	State    int
	Version  string
	Tags     []string
	// What follows came later; a record may end before any of it.
	Flags     int
	Relays    int
	Selection string
}

const (
	recordFields       = 5
	serviceFields      = 8  // in every record
	serviceFieldsKnown = 11 // to this build
)

// flagSecured is a bit of wireService.Flags. Bits that are not known are ignored.
const flagSecured = 1

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

// Encode validates the record and returns its bytes: at most [MaxRecordBytes], a
// msgpack array that begins with a format number. The error names the service
// and the field to change.
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
	for _, s := range full.Services {
		flags := 0
		if s.Secured {
			flags |= flagSecured
		}
		wire.Services = append(wire.Services, wireService{
			Name: s.Name, Address: s.Address, Protocol: index(protocols[:], s.Protocol), Weight: s.Weight,
			Slots: s.Slots, State: index(states[:], s.State), Version: s.Version, Tags: s.Tags,
			Flags: flags, Relays: s.Relays, Selection: s.Selection,
		})
	}
	raw, err := encode(wire)
	if err != nil {
		return nil, err
	}
	if len(raw) > MaxRecordBytes {
		return nil, refuse("too_large", "record of %q takes %d bytes, more than %d: offer fewer services or shorter tags", r.NodeID, len(raw), MaxRecordBytes)
	}
	return raw, nil
}

// DecodeRecord reads a record from the network. It never panics, allocates in
// proportion to the input at most, skips fields it does not know, and applies
// the same limits as Encode. The record does not share memory with raw.
func DecodeRecord(raw []byte) (Record, error) {
	if len(raw) > MaxRecordBytes {
		return Record{}, refuse("too_large", "record of %d bytes: want at most %d", len(raw), MaxRecordBytes)
	}
	r := &reader{rest: raw}
	fields, record := readRecordHead(r)
	services := r.array(MaxServices, "services")
	// The bound keeps an input of 1,024 one-byte services from reserving 150 kB.
	record.Services = make([]Service, 0, min(services, len(r.rest)/serviceFields))
	for range services {
		record.Services = append(record.Services, readService(r))
		if r.err != nil {
			break
		}
	}
	r.skip(fields - recordFields)
	if err := r.finish(); err != nil {
		return Record{}, err
	}
	if err := record.validate(); err != nil {
		return Record{}, err
	}
	return record, nil
}

// readRecordHead reads what comes before the services.
func readRecordHead(r *reader) (fields int, record Record) {
	fields = r.array(math.MaxInt32, "malformed")
	format := r.uint()
	if r.err == nil && format != recordFormat {
		r.fail(refuse("format", "record format %d: this build reads %d", format, recordFormat))
	}
	if r.err == nil && fields < recordFields {
		r.fail(errTruncated)
	}
	record = Record{NodeID: r.string(MaxNodeIDBytes, "node_id"), Epoch: r.uint(), Sequence: r.uint()}
	return fields, record
}

func readService(r *reader) Service {
	fields := r.array(math.MaxInt32, "malformed")
	if r.err == nil && fields < serviceFields {
		r.fail(errTruncated)
	}
	s := Service{Name: r.string(MaxNameBytes, "name"), Address: r.string(MaxAddressBytes, "address")}
	protocol := r.uint()
	s.Weight, s.Slots = r.smallInt(), r.smallInt()
	state := r.uint()
	s.Version = r.string(MaxVersionBytes, "version")
	if tags := r.array(MaxTags, "tags"); tags > 0 {
		s.Tags = make([]string, 0, tags)
		for range tags {
			s.Tags = append(s.Tags, r.string(MaxTagBytes, "tags"))
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
		s.Secured = r.uint()&flagSecured != 0
	}
	if fields > serviceFields+1 {
		s.Relays = r.smallInt()
	}
	if fields > serviceFields+2 {
		s.Selection = r.string(MaxSelection, "selection")
	}
	r.skip(fields - serviceFieldsKnown)
	return s
}

func index[T comparable](all []T, one T) int {
	for i, v := range all {
		if v == one {
			return i
		}
	}
	return -1
}
