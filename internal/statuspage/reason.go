package statuspage

import (
	"strings"

	"github.com/ringway/ringway/internal/process"
)

// ReasonNotice returns the notice for a reason, with the remedy if that is the same for relays and
// workers.
func ReasonNotice(reason process.Reason) Notice {
	n := Notice{Severity: Problem, Text: strings.ToUpper(reason.Text[:1]) + reason.Text[1:] + "."}
	if reason.Code == process.LimitReached {
		n.Remedy, n.Runbook = "Restart the members one after the other with the higher limit; first find out whether the new ones are yours.", "limit-reached"
	}
	return n
}
