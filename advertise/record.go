package advertise

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ringway/ringway/affinity"
)

// Protocol is the protocol of an endpoint's address.
type Protocol string

// The protocols of endpoints. The empty protocol means http1.
const (
	HTTP1 Protocol = "http1"
	H2C   Protocol = "h2c"
	H2    Protocol = "h2"
	TCP   Protocol = "tcp"
)

// State is whether an endpoint takes new requests.
type State string

// The states of endpoints. The empty state means ready.
const (
	Ready    State = "ready"
	Draining State = "draining"
)

// protocols and states are in wire order: a record contains the index. New values are
// added only at the end.
var (
	protocols = [...]Protocol{HTTP1, H2C, H2, TCP}
	states    = [...]State{Ready, Draining}
)

// Limits of a record. Offer refuses a record beyond them, and one from the network is
// dropped.
const (
	MaxServices     = 1024      // services per record
	MaxNodeIDBytes  = 128       // bytes of a node id
	maxAddressBytes = 261       // bytes of host:port: a DNS name of 255, a colon, a port
	maxVersionBytes = 64        // bytes of a service's version
	maxTags         = 16        // tags per service
	maxTagBytes     = 64        // bytes per tag
	MaxRelays       = 1024      // affine relays that a service may request
	maxSelection    = 256       // bytes of a selection strategy
	maxPolicy       = 256       // bytes of the text of a policy
	MaxRecordBytes  = 256 << 10 // bytes of an encoded record and its signature
	maxSlots        = 1<<31 - 1
)

// Service is one worker's offer of one service.
type Service struct {
	// Name is [a-zA-Z0-9][a-zA-Z0-9._-]{0,62}, once per record.
	Name string `json:"name"`
	// Address is the host:port to which relays connect.
	Address string `json:"address"`
	// Protocol is http1 (the default), h2c, h2 or tcp.
	Protocol Protocol `json:"protocol"`
	// Weight is the share of traffic relative to other endpoints, 1 to 100. 0
	// means the default, 10.
	Weight int32 `json:"weight"`
	// Slots is how many requests and tunnels may be in flight; 0 is unlimited. Each relay sends its
	// share. To a Secured service it sends more if no endpoint has room: the sidecar, or Serve,
	// refuses those above.
	Slots int32 `json:"slots"`
	// State is ready (the default) or draining.
	State State `json:"state"`
	// Version is the service's build, at most 64 bytes of printable ASCII.
	Version string `json:"version,omitempty"`
	// Tags are at most 16 labels of at most 64 bytes of printable ASCII, for operators and
	// for callers of this package. Relays do not use them.
	Tags []string `json:"tags,omitempty"`
	// Secured is true if the address is a listener with mutual TLS that proves the
	// worker's node id.
	Secured bool `json:"secured,omitempty"`
	// ProxyProtocol is true if the service expects a header of the PROXY protocol, version
	// 2, with the address of the client at the beginning of each TCP session.
	ProxyProtocol bool `json:"proxy_protocol,omitempty"`
	// Relays is how many relays should serve this service, 1 to 1024; 0 is the
	// fleet's setting.
	Relays int32 `json:"relays,omitempty"`
	// Selection is the strategy, with its parameters, that picks an endpoint, at most 256
	// bytes; empty is the relay's setting. An Advertiser refuses one that it does not know; a
	// relay ignores one of another release.
	Selection string `json:"selection,omitempty"`
	// Policy is the text of a [Policy] for the requests to the service, at most 256 bytes;
	// empty is the relay's settings. An Advertiser refuses what it does not know.
	Policy string `json:"policy,omitempty"`
}

func (s Service) equal(o Service) bool {
	return s.Name == o.Name && s.Address == o.Address && s.Protocol == o.Protocol && s.Weight == o.Weight &&
		s.Slots == o.Slots && s.State == o.State && s.Version == o.Version && slices.Equal(s.Tags, o.Tags) &&
		s.Secured == o.Secured && s.Relays == o.Relays && s.Selection == o.Selection && s.Policy == o.Policy && s.ProxyProtocol == o.ProxyProtocol
}

// Record lists all services that one life of one worker offers, or has the statement of one
// life of one relay. Only that member writes it.
type Record struct {
	// NodeID and Epoch identify the writer: a member and its boot time.
	NodeID string
	Epoch  uint64 // Unix milliseconds
	// Sequence starts at 1 and grows by at least one with every change.
	Sequence uint64
	// Services is empty after the worker has withdrawn them, and for a relay.
	Services []Service
	// Relay is the statement of a relay, nil for a worker.
	Relay *RelayStatement
}

// maxSequence keeps numbers exact for readers of JSON, and leaves a worker room to publish with a
// higher sequence than most forged records. Where members have no certificates, one with exactly
// this sequence stops the worker from publishing until it restarts.
const maxSequence = 1 << 53

// invalid is the error for a refused record or frame. The reason is a metric label, so the
// set of reasons is fixed in the code and never taken from input, and a peer cannot make new
// series of it.
type invalid struct {
	reason string
	detail string
}

func (e *invalid) Error() string { return e.detail }

func refuse(reason, format string, args ...any) error {
	return &invalid{reason: reason, detail: fmt.Sprintf(format, args...)}
}

// withDefaults fills in the defaults.
func (s Service) withDefaults() Service {
	if s.Protocol == "" {
		s.Protocol = HTTP1
	}
	if s.Weight == 0 {
		s.Weight = affinity.DefaultWeight
	}
	if s.State == "" {
		s.State = Ready
	}
	return s
}

// validate expects a service with its defaults filled in.
func (s Service) validate() error {
	if err := affinity.ValidateService(s.Name); err != nil {
		return refuse("name", "%v", err)
	}
	if err := validateAddress(s.Address); err != nil {
		return refuse("address", "service %q: address %.80q: %v: want host:port with a port from 1 to 65535", s.Name, s.Address, err)
	}
	switch s.Protocol {
	case HTTP1, H2C, H2, TCP:
	default:
		return refuse("protocol", "service %q: protocol %.80q: want http1, h2c, h2 or tcp", s.Name, s.Protocol)
	}
	if s.Weight < 1 || s.Weight > affinity.MaxWeight {
		return refuse("weight", "service %q: weight %d: want 1 to %d", s.Name, s.Weight, affinity.MaxWeight)
	}
	if s.Slots < 0 || s.Slots > maxSlots {
		return refuse("slots", "service %q: slots %d: want 0 (unlimited) to %d", s.Name, s.Slots, maxSlots)
	}
	if s.State != Ready && s.State != Draining {
		return refuse("state", "service %q: state %.80q: want ready or draining", s.Name, s.State)
	}
	if len(s.Version) > maxVersionBytes || !printable(s.Version) {
		return refuse("version", "service %q: version %.80q of %d bytes: want at most %d, printable ASCII", s.Name, s.Version, len(s.Version), maxVersionBytes)
	}
	if len(s.Tags) > maxTags {
		return refuse("tags", "service %q: %d tags: want at most %d", s.Name, len(s.Tags), maxTags)
	}
	for _, tag := range s.Tags {
		if len(tag) > maxTagBytes || !printable(tag) {
			return refuse("tags", "service %q: tag %.80q of %d bytes: want at most %d, printable ASCII", s.Name, tag, len(tag), maxTagBytes)
		}
	}
	if s.Relays < 0 || s.Relays > MaxRelays {
		return refuse("relays", "service %q: relays %d: want 0 (the fleet's setting) to %d", s.Name, s.Relays, MaxRelays)
	}
	if s.ProxyProtocol && s.Protocol != TCP {
		return refuse("proxy_protocol", "service %q: the PROXY protocol with protocol %s: want protocol tcp", s.Name, s.Protocol)
	}
	if len(s.Selection) > maxSelection || !printable(s.Selection) {
		return refuse("selection", "service %q: selection %.80q of %d bytes: want at most %d, printable ASCII", s.Name, s.Selection, len(s.Selection), maxSelection)
	}
	if len(s.Policy) > maxPolicy || !printable(s.Policy) {
		return refuse("policy", "service %q: policy %.80q of %d bytes: want at most %d, printable ASCII", s.Name, s.Policy, len(s.Policy), maxPolicy)
	}
	return nil
}

// validate expects a record whose services have their defaults filled in.
func (r Record) validate() error {
	if r.NodeID == "" || len(r.NodeID) > MaxNodeIDBytes || !printable(r.NodeID) {
		return refuse("node_id", "record of node %.40q: want an id of 1 to %d bytes, printable ASCII", r.NodeID, MaxNodeIDBytes)
	}
	if r.Sequence > maxSequence {
		return refuse("sequence", "record of %q: sequence %d: want at most %d", r.NodeID, r.Sequence, uint64(maxSequence))
	}
	if len(r.Services) > MaxServices {
		return refuse("services", "record of %q: %d services: want at most %d", r.NodeID, len(r.Services), MaxServices)
	}
	if r.Relay != nil {
		if len(r.Services) > 0 {
			return refuse("services", "record of %q: %d services beside the statement of a relay: want one of both", r.NodeID, len(r.Services))
		}
		if err := r.Relay.validate(); err != nil {
			return fmt.Errorf("record of %q: %w", r.NodeID, err)
		}
	}
	seen := make(map[string]struct{}, len(r.Services))
	for _, s := range r.Services {
		if err := s.validate(); err != nil {
			return err
		}
		if _, twice := seen[s.Name]; twice {
			return refuse("duplicate", "record of %q: service %q twice: want one endpoint per service and worker", r.NodeID, s.Name)
		}
		seen[s.Name] = struct{}{}
	}
	return nil
}

// printable refuses control characters and other characters outside printable ASCII: the
// text of a record is shown in terminals and logs.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

func validateAddress(address string) error {
	if len(address) > maxAddressBytes {
		return fmt.Errorf("%d bytes are more than %d", len(address), maxAddressBytes)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if host == "" {
		return fmt.Errorf("no host")
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == '/' || r == '@' || r >= 0x7f }) {
		return fmt.Errorf("host with a space, slash, at sign or character outside ASCII")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %.20q", port)
	}
	return nil
}
