package check

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership"
)

// The bounds of facts: a relay of a large cluster sends the beginning of a long list, and
// its length.
const (
	// MaxFacts bounds facts in bytes.
	MaxFacts = 1 << 20
	// MaxMissing bounds Facts.Missing, MaxMembers Facts.Members, MaxReasons Facts.Reasons,
	// and MaxUnproven Facts.Unproven, which an attacker can fill.
	MaxMissing, MaxMembers, MaxReasons, MaxUnproven = 500, 5000, 20, 32
	// maxCount bounds Facts.MissingCount: the sum over all relays must not overflow.
	maxCount = 1 << 30
	// maxText bounds each text of another relay in a report, in bytes.
	maxText = 512
)

// factsFormat changes if a field changes its meaning, which should not happen.
const factsFormat = 1

// Facts are what one relay or gate reports about itself.
type Facts struct {
	Format  int    `json:"format"`
	Relay   string `json:"relay"`
	Role    string `json:"role"`
	Version string `json:"version"`
	// Time is the time of its clock when it answered.
	Time time.Time `json:"time"`

	// Settings are those that must be equal on all relays, in a fixed order; of the plan those in
	// use.
	Settings []Setting `json:"settings"`
	// Plan is where those of the plan come from, nil from a relay of an earlier release.
	Plan *Plan `json:"plan,omitempty"`

	// MembersSum and ServicesSum are the checksums of its views, as in its admin API.
	// Members are the IDs of the members in its view, sorted; empty if the answer can be
	// read by processes that are not members.
	MembersSum  string   `json:"members_sum"`
	ServicesSum string   `json:"services_sum"`
	Members     []string `json:"members,omitempty"`
	MemberCount int      `json:"member_count"`

	// Reasons are why it is not ready; Degraded means that it may be cut off.
	Reasons  []string `json:"reasons,omitempty"`
	Degraded bool     `json:"degraded"`
	// Limits are the limits that leave out a part of the fleet, as sentences.
	Limits   []string   `json:"limits,omitempty"`
	Unproven []Unproven `json:"unproven,omitempty"`

	// GossipKeys are fingerprints, the key in use first; SharedKey is one, empty if it is
	// not sent.
	GossipKeys []string `json:"gossip_keys,omitempty"`
	SharedKey  string   `json:"shared_key,omitempty"`

	// Certificate is nil without a certificate.
	Certificate *Certificate `json:"certificate,omitempty"`

	// Ingress is the certificate of the ingress that ends first, nil if it has none.
	Ingress *IngressCertificate `json:"ingress_certificate,omitempty"`

	// Missing are the connections to workers that the plans want and that are not open;
	// MissingCount is their number.
	Missing      []Missing `json:"missing,omitempty"`
	MissingCount int       `json:"missing_count"`

	Descriptors Descriptors `json:"descriptors"`

	// GossipAddr and PeerAddr are its addresses for the other members.
	GossipAddr string `json:"gossip_addr"`
	PeerAddr   string `json:"peer_addr"`
	// Back is how it reaches the relay that asked.
	Back *Back `json:"back,omitempty"`

	// Load is its traffic, only in the answer to a question for it, which leaves out what the
	// checks compare.
	Load *Load `json:"load,omitempty"`
}

// Setting is one setting and its value as text.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Unproven is a member that is left out because its gossip is not proven, and the reason.
type Unproven struct {
	Member string `json:"member"`
	Reason string `json:"reason"`
}

// Certificate is the validity of a certificate and of its authority.
type Certificate struct {
	NotBefore       time.Time `json:"not_before"`
	NotAfter        time.Time `json:"not_after"`
	AuthorityBefore time.Time `json:"authority_not_before"`
	AuthorityAfter  time.Time `json:"authority_not_after"`
	// Problem is the reason why the files on disk are not in use.
	Problem string `json:"problem,omitempty"`
	// DenyProblem is the reason why the deny list on disk is not in use.
	DenyProblem string `json:"deny_problem,omitempty"`
}

// IngressCertificate is the validity of a certificate that clients see.
type IngressCertificate struct {
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	// Problem is the reason why files of the ingress on disk are not in use.
	Problem string `json:"problem,omitempty"`
}

// Missing is a connection that is not open.
type Missing struct {
	Service string `json:"service"`
	Worker  string `json:"worker"`
	// Refused is why the relay may not open it; empty if it tries.
	Refused string `json:"refused,omitempty"`
}

// Descriptors are the open files of a process.
type Descriptors struct {
	// Open and Limit are 0 if the system does not report them.
	Open  int `json:"open"`
	Limit int `json:"limit"`
	// Links are the connections that its plans want, Requests the most requests that it
	// carries at a time for one service.
	Links    int `json:"links"`
	Requests int `json:"requests"`
}

// Back is how a relay reaches the one that asked it. An empty text means success.
type Back struct {
	UDP  string `json:"udp"`
	Peer string `json:"peer"`
}

// Encode returns the JSON form. The slices are cut to their bounds.
func (f Facts) Encode() ([]byte, error) {
	f.Format = factsFormat
	f.cut()
	return json.Marshal(f)
}

// cut bounds the lists of a sender, and those of a compromised relay at the receiver.
func (f *Facts) cut() {
	f.Members = f.Members[:min(len(f.Members), MaxMembers)]
	f.Missing = f.Missing[:min(len(f.Missing), MaxMissing)]
	f.Reasons = f.Reasons[:min(len(f.Reasons), MaxReasons)]
	f.Limits = f.Limits[:min(len(f.Limits), MaxReasons)]
	f.Unproven = f.Unproven[:min(len(f.Unproven), MaxUnproven)]
	if f.Load != nil {
		f.Load.cut()
	}
}

// ErrInvalid is wrapped by errors about facts that cannot be used.
var ErrInvalid = errors.New("its facts are of no use")

// DecodeFacts reads what another relay sent, at most MaxFacts bytes of it. An error about
// the content wraps ErrInvalid.
func DecodeFacts(r io.Reader) (*Facts, error) {
	body, err := io.ReadAll(io.LimitReader(r, MaxFacts+1))
	if err != nil {
		return nil, fmt.Errorf("read its facts: %w", err)
	}
	if len(body) > MaxFacts {
		return nil, fmt.Errorf("%w: they are more than %d bytes", ErrInvalid, MaxFacts)
	}
	var f Facts
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("%w: they are no facts: %w", ErrInvalid, err)
	}
	if f.Format != factsFormat {
		return nil, fmt.Errorf("%w: they have format %d, this relay reads %d (another version?)", ErrInvalid, f.Format, factsFormat)
	}
	f.cut()
	if f.MissingCount < len(f.Missing) || f.MissingCount > maxCount {
		return nil, fmt.Errorf("%w: they list %d missing connections and count %d: upgrade or replace it", ErrInvalid, len(f.Missing), f.MissingCount)
	}
	if f.Load != nil {
		if err := f.Load.validate(); err != nil {
			return nil, fmt.Errorf("%w: an impossible load: %w: upgrade or replace it", ErrInvalid, err)
		}
	}
	return &f, nil
}

// Fleet is the input of Judge.
type Fleet struct {
	// Now is this relay's time.
	Now time.Time
	// Self are the facts of the relay that checks.
	Self Facts
	// Peers are the other relays and gates of its view, by ID, and those that have vanished
	// from it.
	Peers []Peer
	// Services are those that this relay knows, by name.
	Services []Service
	// Refused is what workers offer and this relay does not use.
	Refused []advertise.Refusal
	// Named is how many workers have a certificate that names services; Nameless are the others.
	// NamesRequired reports whether this relay refuses the offers of these.
	Named         int
	Nameless      []string
	NamesRequired bool
	// Pings are the results of the members that were asked over UDP.
	Pings []Ping
	// Keys are the gossip keys of the workers that were asked.
	Keys []membership.KeyResult
	// Addresses are the gossip addresses of all members, by ID.
	Addresses map[string]string
	// Strangers are the processes that this relay refused as members in the last minutes.
	Strangers []membership.Refused
	// Duplicates are the IDs under which two processes run.
	Duplicates []membership.Duplicate
	// Workers is how many workers are in the view; Idle are those that offer no service.
	Workers int
	Idle    []string
	// FailedWorkers vanished without leaving in the last minutes.
	FailedWorkers []FailedWorker
}

// Peer is another relay or gate and its answer.
type Peer struct {
	ID   string
	Addr string // of its peer listener
	// Gone is when it vanished from the view without leaving; zero if it has not.
	Gone time.Time
	// Facts are nil if it did not answer; Err is the reason.
	Facts *Facts
	Err   error
	// Asked is when the question was sent, by this relay's clock; Took is how long the
	// answer took.
	Asked time.Time
	Took  time.Duration
}

// FailedWorker is a worker that vanished without leaving.
type FailedWorker struct {
	membership.Departure
	// Asked is whether its process was asked over TCP; TCP is why it did not answer, as in Ping.
	Asked bool
	TCP   error
}

// runs reports whether it runs, although it is not in the view.
func (w FailedWorker) runs() bool { return w.Asked && w.TCP == nil }

// Service is a service as this relay plans it.
type Service struct {
	Name string
	// Plan is nil while no endpoint takes requests.
	Plan *api.Plan
	// Wanted is how many relays each worker should have if there are enough.
	Wanted int
	// LoadWanted is how many times its share a worker may get, as planned; 0 means 1.1.
	LoadWanted float64
	// Selections and RelayVotes are what its workers advertise for the whole service, the
	// value in use first.
	Selections, RelayVotes []Vote
	// Policies are the votes for the fields of its policy.
	Policies []PolicyVotes
	// Refused are the workers whose offers this relay does not use, with the reason.
	Refused map[string]string
}

// PolicyVotes are the votes for the field of a policy with this key.
type PolicyVotes struct {
	Key   string
	Votes []Vote
}

// Ping is one member that was asked over UDP.
type Ping struct {
	ID, Addr string
	Role     string
	// Err is why it did not answer over UDP; nil if it answered.
	Err error
	// TCP is why the process did not answer over TCP either; nil if it did or was not asked.
	// A process whose TCP answers runs, and UDP to it is blocked.
	TCP error
}

// all returns the facts of this relay, and of those that answered and have not vanished.
func (f *Fleet) all() []*Facts {
	out := []*Facts{&f.Self}
	for i := range f.Peers {
		if p := &f.Peers[i]; p.Facts != nil && p.Gone.IsZero() {
			out = append(out, p.Facts)
		}
	}
	return out
}

// ErrNoFacts is wrapped by Peer.Err if the relay runs but does not know the question.
var ErrNoFacts = errors.New("does not answer facts (older version, or a program with selection/router?)")

// ErrBusy is wrapped by Peer.Err if the relay answered that it has too many such questions.
var ErrBusy = errors.New("is busy with the questions of other checks")

// goneFor is how long a relay that vanished and does not answer counts as failed.
const goneFor = 15 * time.Minute

// relaysAnswer: every relay in the view is asked, and every relay that vanished without
// leaving. A relay that answers but is not in the view is on the other side of a
// partition.
func relaysAnswer(f *Fleet) (found []api.Finding) {
	for _, p := range f.Peers {
		gone := ""
		if !p.Gone.IsZero() {
			gone = span(f.Now.Sub(p.Gone))
		}
		switch {
		case p.Facts != nil && gone != "":
			found = append(found, api.Finding{
				Status: api.Failed, Subject: p.ID, Passing: true,
				Text:   fmt.Sprintf("relay %s runs and is not in the view: it vanished %s ago", p.ID, gone),
				Cause:  "gossip between the two is cut, or goes one way only: the cluster is split, and the parts plan without each other",
				Remedy: fmt.Sprintf("allow TCP and UDP between the gossip addresses of both hosts; run `relay check` on %s, too; the parts find each other within a minute", p.ID),
				Page:   page("members-disagree"),
			})
		case p.Facts != nil:
		case gone != "" && refused(p.Err):
			found = append(found, api.Finding{
				Status: api.Warning, Subject: p.ID,
				Text:   fmt.Sprintf("relay %s vanished %s ago without leaving, and nothing listens at %s", p.ID, gone, p.Addr),
				Cause:  "it crashed, was killed, or its host is down; its workers were shared out among the others",
				Remedy: fmt.Sprintf("start %s again; if it is gone for good, do nothing: it is forgotten after an hour", p.ID),
				Page:   page("member-down"),
			})
		case gone != "":
			status := api.Failed
			if f.Now.Sub(p.Gone) > goneFor {
				status = api.Warning // it will probably not return
			}
			found = append(found, api.Finding{
				Status: status, Subject: p.ID,
				Text:   fmt.Sprintf("relay %s vanished %s ago without leaving, and does not answer at %s: %v", p.ID, gone, p.Addr, p.Err),
				Cause:  "it is partitioned from this relay, or its process hangs; the others have taken its workers over",
				Remedy: fmt.Sprintf("check the process and the network of %s; if it is gone for good, do nothing: it is forgotten after an hour", p.ID),
				Page:   page("member-down"),
			})
		case errors.Is(p.Err, ErrNoFacts):
			found = append(found, api.Finding{
				Status: api.Warning, Subject: p.ID,
				Text:   fmt.Sprintf("relay %s %v: it is not compared", p.ID, ErrNoFacts),
				Cause:  p.Err.Error(),
				Remedy: fmt.Sprintf("if %s runs the relay's binary, upgrade it and check again; a program with selection/router carries requests and answers no facts, so there is nothing to do", p.ID),
				Page:   page("relay-silent"),
			})
		case errors.Is(p.Err, ErrBusy):
			found = append(found, api.Finding{
				Status: api.Warning, Subject: p.ID,
				Text:   fmt.Sprintf("relay %s %v: it is not compared", p.ID, ErrBusy),
				Cause:  "more relays check at the same time than it answers",
				Remedy: "check again later; let timers that run `relay check` on many relays wait for a random time first",
				Page:   page("relay-silent"),
			})
		default:
			found = append(found, api.Finding{
				Status: api.Failed, Subject: p.ID, Passing: true,
				Text:   fmt.Sprintf("relay %s is in the view and does not answer at %s: %v", p.ID, p.Addr, p.Err),
				Cause:  "it hangs, is overloaded, or its peer address cannot be reached from here; requests that must be forwarded to it fail",
				Remedy: fmt.Sprintf("check the process of %s (`relay health` there), and allow TCP from this host to %s", p.ID, p.Addr),
				Page:   page("relay-silent"),
			})
		}
	}
	return found
}

// refused reports whether the host answers but no process listens.
func refused(err error) bool {
	var op *net.OpError
	var call *os.SyscallError
	return errors.As(err, &op) && errors.As(op, &call) && isRefused(call.Err)
}

func fineAnswers(f *Fleet) string {
	return fmt.Sprintf("%s: all answer", plural(len(f.Peers)+1, "relay", "relays"))
}
