package check

import (
	"fmt"
	"time"
)

const day = 24 * time.Hour

// certificates: how much is left of each, and of what they rest on.
func certificates(f *Fleet) (found []Finding) {
	for _, one := range f.all() {
		c := one.Certificate
		if c == nil {
			continue
		}
		if status := remaining(c.NotBefore, c.NotAfter, f.Now); status != OK {
			finding := Finding{
				Status: status, Subject: one.Relay,
				Text:   fmt.Sprintf("the certificate of %s %s", one.Relay, ends(c.NotAfter, f.Now)),
				Cause:  "it was not renewed in time; from its end on nobody accepts a new connection from or to this relay",
				Remedy: "renew it (`relay tls cert create`, or what issues yours) and replace both files, each by a rename: they are read within seconds, without a restart",
				Page:   page("certificate-expires"),
			}
			if status == Failed {
				finding.Page = page("certificate-expires-today")
			}
			found = append(found, finding)
		}
		if status := remaining(c.AuthorityBefore, c.AuthorityAfter, f.Now); status != OK {
			found = append(found, Finding{
				Status: status, Subject: one.Relay,
				Text:   fmt.Sprintf("the authority of the certificate of %s %s", one.Relay, ends(c.AuthorityAfter, f.Now)),
				Cause:  "from its end on no certificate that it signed is accepted, however long that one lasts",
				Remedy: "make a new authority, add it to the --tls-ca bundle of every member, then renew the certificates by it, then remove the old one",
				Page:   page("authority-expires"),
			})
		}
		if c.Problem != "" {
			found = append(found, Finding{
				Status: Warning, Subject: one.Relay,
				Text:   fmt.Sprintf("%s cannot use the certificate files it has: %s", one.Relay, c.Problem),
				Cause:  "the old certificate stays in use until it ends",
				Remedy: "put a certificate, its key and the authorities there that fit together; `relay tls info FILE` shows what is in a file",
				Page:   page("certificate-reload-failed"),
			})
		}
		if c.DenyProblem != "" {
			found = append(found, Finding{
				Status: Failed, Subject: one.Relay,
				Text:   fmt.Sprintf("%s cannot use its deny list: %s", one.Relay, c.DenyProblem),
				Cause:  "the list from before stays in use: what the new one shuts out still gets in",
				Remedy: "correct the file of --tls-deny-file; `relay config validate` names every wrong line",
				Page:   page("deny-list-reload-failed"),
			})
		}
	}
	with, without := 0, []string(nil)
	for _, one := range f.all() {
		if one.Certificate != nil {
			with++
		} else {
			without = append(without, one.Relay)
		}
	}
	if with > 0 && len(without) > 0 {
		found = append(found, Finding{
			Status: Failed, Subject: list(without),
			Text:   fmt.Sprintf("%s has no certificate, and others have", list(without)),
			Cause:  "those with one refuse whoever has none",
			Remedy: "give it --tls-cert, --tls-key and --tls-ca",
			Page:   page("handshakes-refused"),
		})
	}
	return found
}

// remaining judges a life: a warning when less than a fifth or a week is left, a
// failure when less than a day is. Of lives shorter than a month it takes a quarter
// for the week and a twentieth for the day: who renews every hour is not warned all
// the time.
func remaining(begin, end, now time.Time) Status {
	life, left := end.Sub(begin), end.Sub(now)
	switch {
	case left < min(day, life/20):
		return Failed
	case left < max(life/5, min(7*day, life/4)):
		return Warning
	}
	return OK
}

func ends(end, now time.Time) string {
	if left := end.Sub(now); left > 0 {
		return fmt.Sprintf("ends in %s, at %s", span(left), end.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("ended %s ago, at %s", span(now.Sub(end)), end.UTC().Format(time.RFC3339))
}

func fineCertificates(f *Fleet) string {
	var first time.Time
	for _, one := range f.all() {
		if c := one.Certificate; c != nil {
			for _, end := range []time.Time{c.NotAfter, c.AuthorityAfter} {
				if first.IsZero() || end.Before(first) {
					first = end
				}
			}
		}
	}
	if first.IsZero() {
		return "no certificates are in use"
	}
	return fmt.Sprintf("certificates and authorities last %s at least", span(first.Sub(f.Now)))
}
