package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/api"
)

const day = 24 * time.Hour

// certificates checks how long each certificate and its authority are still valid.
func certificates(f *Fleet) (found []api.Finding) {
	for _, one := range f.all() {
		found = append(found, ingressCertificate(one, f.Now)...)
		c := one.Certificate
		if c == nil {
			continue
		}
		if status := remaining(c.NotBefore, c.NotAfter, f.Now); status != api.OK {
			found = append(found, api.Finding{
				Status: status, Subject: one.Relay,
				Text:   fmt.Sprintf("the certificate of %s %s", one.Relay, ends(c.NotAfter, f.Now)),
				Cause:  "it was not renewed in time; after its end members accept no new connection from or to this relay",
				Remedy: "renew it (`relay tls cert create`, or what issues yours) and replace both files, each by a rename: they are read within seconds, without a restart",
				Page:   page("certificates"),
			})
		}
		if status := remaining(c.AuthorityBefore, c.AuthorityAfter, f.Now); status != api.OK {
			found = append(found, api.Finding{
				Status: status, Subject: one.Relay,
				Text:   fmt.Sprintf("the authority of the certificate of %s %s", one.Relay, ends(c.AuthorityAfter, f.Now)),
				Cause:  "from its end on no certificate that it signed is accepted, however long that one lasts",
				Remedy: "make a new authority, add it to the --tls-ca bundle of every member, then renew the certificates by it, then remove the old one",
				Page:   page("certificates"),
			})
		}
		if c.Problem != "" {
			found = append(found, api.Finding{
				Status: api.Warning, Subject: one.Relay,
				Text:   fmt.Sprintf("%s cannot use the certificate files it has: %s", one.Relay, c.Problem),
				Cause:  "the old certificate stays in use until it ends",
				Remedy: "replace the files by a certificate, its key and its authorities; `relay tls info FILE` shows the content of a file",
				Page:   page("certificates"),
			})
		}
		if c.DenyProblem != "" {
			found = append(found, api.Finding{
				Status: api.Failed, Subject: one.Relay,
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
		found = append(found, api.Finding{
			Status: api.Failed, Subject: list(without),
			Text:   fmt.Sprintf("%s has no certificate, and others have", list(without)),
			Cause:  "members with a certificate refuse members without one",
			Remedy: "give it --tls-cert, --tls-key and --tls-ca",
			Page:   page("refusals"),
		})
	}
	return found
}

// ingressCertificate checks what clients of a relay see.
func ingressCertificate(one *Facts, now time.Time) (found []api.Finding) {
	c := one.Ingress
	if c == nil {
		return nil
	}
	if status := remaining(c.NotBefore, c.NotAfter, now); status != api.OK {
		found = append(found, api.Finding{
			Status: status, Subject: one.Relay,
			Text:   fmt.Sprintf("a certificate of the ingress of %s %s", one.Relay, ends(c.NotAfter, now)),
			Cause:  "it was not renewed in time; after its end clients refuse the ingress",
			Remedy: "let its authority issue another one, and replace both files of --ingress-tls-cert and --ingress-tls-key, or of cert and key in --ingress-addr, each by a rename: they are read within seconds, without a restart",
			Page:   page("certificates"),
		})
	}
	if c.Problem != "" {
		found = append(found, api.Finding{
			Status: api.Warning, Subject: one.Relay,
			Text:   fmt.Sprintf("%s cannot use the files of its ingress: %s", one.Relay, c.Problem),
			Cause:  "the old ones stay in use until they end",
			Remedy: "replace the files of --ingress-tls-cert and --ingress-tls-key by a certificate and its key, or that of --ingress-client-ca, also where they stand in --ingress-addr; `relay tls info FILE` shows the content of a file",
			Page:   page("certificates"),
		})
	}
	return found
}

// remaining judges a time of validity: a warning if less than a fifth or a week is left, a
// failure if less than a day is left. For validities shorter than a month, a quarter
// replaces the week and a twentieth the day, so that certificates that are renewed every
// hour do not always cause a warning.
func remaining(begin, end, now time.Time) api.Status {
	life, left := end.Sub(begin), end.Sub(now)
	switch {
	case left < min(day, life/20):
		return api.Failed
	case left < max(life/5, min(7*day, life/4)):
		return api.Warning
	}
	return api.OK
}

func ends(end, now time.Time) string {
	if left := end.Sub(now); left > 0 {
		return fmt.Sprintf("ends in %s, at %s", span(left), end.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("ended %s ago, at %s", span(now.Sub(end)), end.UTC().Format(time.RFC3339))
}

func fineCertificates(f *Fleet) string {
	var first time.Time
	until := func(end time.Time) {
		if first.IsZero() || end.Before(first) {
			first = end
		}
	}
	for _, one := range f.all() {
		if c := one.Certificate; c != nil {
			until(c.NotAfter)
			until(c.AuthorityAfter)
		}
		if c := one.Ingress; c != nil {
			until(c.NotAfter)
		}
	}
	if first.IsZero() {
		return "no certificates are in use"
	}
	return fmt.Sprintf("certificates and authorities last %s at least", span(first.Sub(f.Now)))
}

// gossipKeys checks that all members use the same gossip key and have the same keys.
func gossipKeys(f *Fleet) (found []api.Finding) {
	ours := f.Self.GossipKeys
	judge := func(id string, theirs []string) {
		switch {
		case len(ours) == 0 && len(theirs) == 0:
		case len(ours) == 0 || len(theirs) == 0 || ours[0] != theirs[0]:
			found = append(found, api.Finding{
				Status: api.Failed, Subject: id,
				Text:   fmt.Sprintf("%s encrypts gossip with the key %s, %s with %s", id, first(theirs), f.Self.Relay, first(ours)),
				Cause:  "a rotation is not finished, or one of the two has the wrong key file",
				Remedy: "finish the rotation: `relay keys use FINGERPRINT`, which waits until all have the key; `relay keys list` shows who has which",
				Page:   page("refusals"), Passing: true,
			})
		case !sameKeys(ours, theirs):
			found = append(found, api.Finding{
				Status: api.Warning, Subject: id,
				Text:   fmt.Sprintf("%s has the gossip keys %s, %s has %s", id, strings.Join(theirs, " "), f.Self.Relay, strings.Join(ours, " ")),
				Cause:  "a rotation is running or was not finished: the old key is not removed everywhere, or the new one not installed everywhere",
				Remedy: "`relay keys install FILE` for a key that some lack, `relay keys remove FINGERPRINT` for one that is not used any more",
				Page:   page("refusals"), Passing: true,
			})
		}
	}
	for _, one := range f.all()[1:] {
		judge(one.Relay, one.GossipKeys)
	}
	dead := f.dead() // workersAnswer reports these
	for _, k := range f.Keys {
		if dead[k.Member] {
			continue
		}
		if k.Error != "" {
			found = append(found, api.Finding{
				Status: api.Warning, Subject: k.Member, Passing: true,
				Text:   fmt.Sprintf("worker %s does not list its gossip keys: %s", k.Member, k.Error),
				Cause:  "a stream to its gossip address cannot be opened, or breaks off",
				Remedy: fmt.Sprintf("allow TCP to the gossip address of %s; read its log", k.Member),
				Page:   page("refusals"),
			})
			continue
		}
		judge(k.Member, k.Fingerprints)
	}
	return found
}

func first(fingerprints []string) string {
	if len(fingerprints) == 0 {
		return "none"
	}
	return fingerprints[0]
}

func sameKeys(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func fineGossipKeys(f *Fleet) string {
	if len(f.Self.GossipKeys) == 0 {
		return "gossip is not encrypted, on no relay"
	}
	return fmt.Sprintf("%s have the same %s", plural(len(f.all())+len(f.Keys), "member", "members"), plural(len(f.Self.GossipKeys), "gossip key", "gossip keys"))
}

// sharedKey checks that all relays sign session cookies with the same key.
func sharedKey(f *Fleet) (found []api.Finding) {
	if f.Self.SharedKey == "" {
		return nil
	}
	for _, one := range f.all()[1:] {
		if one.SharedKey != "" && one.SharedKey != f.Self.SharedKey {
			found = append(found, api.Finding{
				Status: api.Warning, Subject: one.Relay, Passing: true,
				Text:   fmt.Sprintf("%s signs session cookies with the key %s, %s with %s", one.Relay, one.SharedKey, f.Self.Relay, f.Self.SharedKey),
				Cause:  "each was given another key, or they made theirs while they did not see each other",
				Remedy: "set the same --shared-key-file on all relays, or restart one of the two: it takes the key of the others",
				Page:   page("shared-key-forked"),
			})
		}
	}
	return found
}

func fineSharedKey(f *Fleet) string {
	if f.Self.SharedKey == "" {
		return "the shared key is not compared: its fingerprint does not travel in clear text, or there is none yet"
	}
	return "all relays sign with the same shared key"
}
