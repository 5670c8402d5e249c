package check

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ringway/ringway/internal/api"
)

type oneCheck struct {
	name  string
	judge func(*Fleet) []api.Finding
	// fine returns the text for a check without findings.
	fine func(*Fleet) string
}

// checks are all checks, in the order of the report.
var checks = []oneCheck{
	{"ids-unique", idsUnique, fineIDs},                   // first: see Judge
	{"workers-answer", workersAnswer, fineWorkersAnswer}, // it explains what follows
	{"relays-answer", relaysAnswer, fineAnswers},
	{"ready", ready, fineReady},
	{"limits", limits, fineLimits},
	{"settings-agree", settingsAgree, fineSettings},
	{"plan-agree", planAgree, finePlan},
	{"members-agree", membersAgree, fineMembers},
	{"services-agree", servicesAgree, fineServices},
	{"advertised-agree", advertisedAgree, fineAdvertised},
	{"offers-used", offersUsed, fineOffers},
	{"service-names", serviceNames, fineServiceNames},
	{"view-trusted", viewTrusted, fineTrusted},
	{"unproven", unproven, fineUnproven},
	{"refusals", refusals, fineRefusals},
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

// Judge makes every check. If the ID of this relay belongs to another process by now, only
// that is judged: the relay is in no view, and all other findings would result from that.
func Judge(f *Fleet) *api.Report {
	r := &api.Report{Relay: f.Self.Relay, Time: f.Now, Status: api.OK, Findings: []api.Finding{}}
	for _, c := range judgedBy(f) {
		found := grouped(c.judge(f))
		if len(found) == 0 {
			found = []api.Finding{{Status: api.OK, Text: c.fine(f)}}
		}
		for _, one := range found {
			one.Check = c.name
			for _, text := range []*string{&one.Text, &one.Cause, &one.Remedy, &one.Subject} {
				*text = Clean(*text)
			}
			switch one.Status {
			case api.Failed:
				r.Failures++
				r.Status = api.Failed
			case api.Warning:
				r.Warnings++
				if r.Status == api.OK {
					r.Status = api.Warning
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

// page returns the path of a runbook.
func page(name string) string { return "docs/operations/" + name + ".md" }

// mostNamed bounds how many things a sentence names.
const mostNamed = 8

// list returns the first of many names, sorted.
func list(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if len(names) > mostNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
	}
	return strings.Join(names, ", ")
}

// Clean removes from the texts of another relay the characters that would move the cursor
// of a terminal or reverse the direction of text.
func Clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > 4*maxText {
		text = strings.ToValidUTF8(text[:4*maxText], "") + "…"
	}
	return text
}

// plural returns a number of things as text.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// span returns an approximate duration as text.
func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(d/time.Hour))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", int(d/time.Minute))
	}
	return d.Round(time.Second / 10).String()
}
