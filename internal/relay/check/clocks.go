package check

import (
	"fmt"
	"time"
)

const (
	// skewWarning is more than synchronised clocks differ by; skewFailure is near the
	// five minutes by which certificates are dated back.
	skewWarning = time.Second
	skewFailure = 2 * time.Minute
)

// clocks: how far those of the others are from this one's, at least. The answer was
// written at some moment between the question and its arrival; half the round trip
// is the best guess and the other half its error, which is taken off.
func clocks(f *Fleet) (found []Finding) {
	for _, p := range f.Peers {
		if p.Facts == nil || !p.Gone.IsZero() {
			continue
		}
		skew := p.Facts.Time.Sub(p.Asked.Add(p.Took / 2))
		size, word := skew, "ahead"
		if skew < 0 {
			size, word = -skew, "behind"
		}
		size -= p.Took / 2
		if size < skewWarning {
			continue
		}
		finding := Finding{
			Status: Warning, Subject: p.ID,
			Text:   fmt.Sprintf("the clock of %s is at least %s %s that of %s", p.ID, span(size), word, f.Self.Relay),
			Cause:  "certificates seem not yet valid or over, and of two lives of a member the wrong one can seem the later",
			Remedy: "synchronise the clocks of both hosts (chrony, systemd-timesyncd)",
			Page:   page("clock-skew"),
		}
		if size >= skewFailure {
			finding.Status = Failed
		}
		found = append(found, finding)
	}
	return found
}

func fineClocks(f *Fleet) string {
	if len(f.all()) == 1 {
		return "no other relay to compare clocks with"
	}
	return fmt.Sprintf("the clocks of %d relays differ by less than %s", len(f.all()), skewWarning)
}
