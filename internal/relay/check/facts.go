package check

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// The bounds of facts: a relay of a large fleet tells the first of a long list, and
// how many there are.
const (
	// MaxFacts is in bytes.
	MaxFacts = 1 << 20
	// MaxMissing bounds Facts.Missing, MaxMembers Facts.Members, MaxReasons
	// Facts.Reasons, MaxUnproven Facts.Unproven, which strangers can fill.
	MaxMissing, MaxMembers, MaxReasons, MaxUnproven = 500, 5000, 20, 32
	// maxCount bounds Facts.MissingCount: the sum over all relays must not overflow.
	maxCount = 1 << 30
	// maxText bounds each text of another relay that ends up in a report.
	maxText = 512
)

// factsFormat grows when a field changes its meaning, which it should not.
const factsFormat = 1

// Facts are what one relay or gate says of itself.
type Facts struct {
	Format  int    `json:"format"`
	Relay   string `json:"relay"`
	Role    string `json:"role"`
	Version string `json:"version"`
	// Time is that of its clock when it answered.
	Time time.Time `json:"time"`

	// Settings are those that all relays must have alike, in a fixed order.
	Settings []Setting `json:"settings"`

	// MembersSum and ServicesSum are the checksums of its views, as its admin API
	// shows them. Members are the ids that it sees, sorted; empty where they are not
	// for the eyes of everybody on the network.
	MembersSum  string   `json:"members_sum"`
	ServicesSum string   `json:"services_sum"`
	Members     []string `json:"members,omitempty"`
	MemberCount int      `json:"member_count"`

	// Reasons are why it is not ready, Degraded that it may be cut off.
	Reasons  []string   `json:"reasons,omitempty"`
	Degraded bool       `json:"degraded"`
	Unproven []Unproven `json:"unproven,omitempty"`

	// GossipKeys are fingerprints, the one in use first; SharedKey one, if it is told.
	GossipKeys []string `json:"gossip_keys,omitempty"`
	SharedKey  string   `json:"shared_key,omitempty"`

	// Certificate is nil without one.
	Certificate *Certificate `json:"certificate,omitempty"`

	// Missing are the connections to workers that the plans want and that are not
	// open; MissingCount is how many there are.
	Missing      []Missing `json:"missing,omitempty"`
	MissingCount int       `json:"missing_count"`

	Descriptors Descriptors `json:"descriptors"`

	// GossipAddr and PeerAddr are where it tells the others to reach it.
	GossipAddr string `json:"gossip_addr"`
	PeerAddr   string `json:"peer_addr"`
	// Back says how it reaches the relay that asked.
	Back *Back `json:"back,omitempty"`
}

// Setting is one setting and its value as text.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Unproven is a member that is left out because nothing proves what it gossips, and why.
type Unproven struct {
	Member string `json:"member"`
	Reason string `json:"reason"`
}

// Certificate is the life of a certificate and of what it rests on.
type Certificate struct {
	NotBefore       time.Time `json:"not_before"`
	NotAfter        time.Time `json:"not_after"`
	AuthorityBefore time.Time `json:"authority_not_before"`
	AuthorityAfter  time.Time `json:"authority_not_after"`
	// Problem is why the files on disk are not in use.
	Problem string `json:"problem,omitempty"`
	// DenyProblem is why the deny list on disk is not in use.
	DenyProblem string `json:"deny_problem,omitempty"`
}

// Missing is a connection that is not open.
type Missing struct {
	Service string `json:"service"`
	Worker  string `json:"worker"`
}

// Descriptors are the open files of a process.
type Descriptors struct {
	// Open and Limit are 0 where the system does not tell.
	Open  int `json:"open"`
	Limit int `json:"limit"`
	// Links are the connections that its plans want, Requests the most requests that
	// it carries at a time for one service.
	Links    int `json:"links"`
	Requests int `json:"requests"`
}

// Back is how a relay reaches the one that asked it. Each text is empty where it does.
type Back struct {
	UDP  string `json:"udp"`
	Peer string `json:"peer"`
}

// Encode is what travels. The slices are cut to their bounds.
func (f Facts) Encode() ([]byte, error) {
	f.Format = factsFormat
	f.cut()
	return json.Marshal(f)
}

// cut bounds what is told, and what is believed of a relay that was taken over.
func (f *Facts) cut() {
	f.Members = f.Members[:min(len(f.Members), MaxMembers)]
	f.Missing = f.Missing[:min(len(f.Missing), MaxMissing)]
	f.Reasons = f.Reasons[:min(len(f.Reasons), MaxReasons)]
	f.Unproven = f.Unproven[:min(len(f.Unproven), MaxUnproven)]
}

// DecodeFacts reads what another relay sent, at most MaxFacts bytes of it.
func DecodeFacts(r io.Reader) (*Facts, error) {
	body, err := io.ReadAll(io.LimitReader(r, MaxFacts+1))
	if err != nil {
		return nil, fmt.Errorf("read its facts: %w", err)
	}
	if len(body) > MaxFacts {
		return nil, fmt.Errorf("its facts are more than %d bytes", MaxFacts)
	}
	var f Facts
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("its facts are no facts: %w", err)
	}
	if f.Format != factsFormat {
		return nil, fmt.Errorf("its facts have format %d, this relay reads %d (another version?)", f.Format, factsFormat)
	}
	f.cut()
	if f.MissingCount < len(f.Missing) || f.MissingCount > maxCount {
		return nil, fmt.Errorf("its facts list %d missing connections and count %d: upgrade or replace it", len(f.Missing), f.MissingCount)
	}
	return &f, nil
}
