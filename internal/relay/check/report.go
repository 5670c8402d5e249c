package check

import (
	"slices"
	"time"
)

// Status is how grave a finding is.
type Status string

// The statuses, from good to bad.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
)

// Finding is what one check found of one thing.
type Finding struct {
	// Check names the check, Status how it came out.
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Subject is the member or service concerned; empty for the fleet.
	Subject string `json:"subject,omitempty"`
	// Text says what is the case, Cause why or what it means, Remedy what to do.
	Text   string `json:"text"`
	Cause  string `json:"cause,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Page is the page of the manual, below the root of the repository.
	Page string `json:"page,omitempty"`

	// Passing: it may be over in a moment, as while news travels.
	Passing bool `json:"-"`
}

// Report is what GET /api/v1/check answers with.
type Report struct {
	// Relay is who checked, Time when, by its clock.
	Relay string    `json:"relay"`
	Time  time.Time `json:"time"`
	// Status is the worst of the findings.
	Status   Status    `json:"status"`
	Warnings int       `json:"warnings"`
	Failures int       `json:"failures"`
	Findings []Finding `json:"findings"` // in the order of the checks
}

// Passing reports whether anything is wrong that may be over in a moment.
func (r *Report) Passing() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Status != OK && f.Passing })
}

type oneCheck struct {
	name  string
	judge func(*Fleet) []Finding
	// fine is said when nothing is found.
	fine func(*Fleet) string
}

// checks are all of them, in the order of the report.
var checks = []oneCheck{
	{"ids-unique", idsUnique, fineIDs}, // first: see Judge
	{"relays-answer", relaysAnswer, fineAnswers},
	{"ready", ready, fineReady},
	{"settings-agree", settingsAgree, fineSettings},
	{"members-agree", membersAgree, fineMembers},
	{"services-agree", servicesAgree, fineServices},
	{"advertised-agree", advertisedAgree, fineAdvertised},
	{"offers-used", offersUsed, fineOffers},
	{"view-trusted", viewTrusted, fineTrusted},
	{"unproven", unproven, fineUnproven},
	{"coverage", coverage, fineCoverage},
	{"certificates", certificates, fineCertificates},
	{"clocks", clocks, fineClocks},
	{"gossip-keys", gossipKeys, fineGossipKeys},
	{"shared-key", sharedKey, fineSharedKey},
	{"udp", udp, fineUDP},
	{"addresses", addresses, fineAddresses},
	{"descriptors", descriptors, fineDescriptors},
}

// Names lists the checks, in the order of the report.
func Names() []string {
	out := make([]string, len(checks))
	for i, c := range checks {
		out[i] = c.name
	}
	return out
}

// Judge makes every check. A relay whose id belongs to another process by now judges
// that alone: it is in no view, and all else that it sees follows from that.
func Judge(f *Fleet) *Report {
	r := &Report{Relay: f.Self.Relay, Time: f.Now, Status: OK, Findings: []Finding{}}
	for _, c := range judgedBy(f) {
		found := c.judge(f)
		if len(found) == 0 {
			found = []Finding{{Status: OK, Text: c.fine(f)}}
		}
		for _, one := range found {
			one.Check = c.name
			for _, text := range []*string{&one.Text, &one.Cause, &one.Remedy, &one.Subject} {
				*text = clean(*text)
			}
			switch one.Status {
			case Failed:
				r.Failures++
				r.Status = Failed
			case Warning:
				r.Warnings++
				if r.Status == OK {
					r.Status = Warning
				}
			}
			r.Findings = append(r.Findings, one)
		}
	}
	return r
}

func judgedBy(f *Fleet) []oneCheck {
	for _, d := range f.Duplicates {
		if leftOut(f, d) {
			return checks[:1]
		}
	}
	return checks
}

// page is where the runbooks are.
func page(name string) string { return "docs/operations/" + name + ".md" }
