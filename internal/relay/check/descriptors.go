package check

import (
	"fmt"

	"github.com/ringway/ringway/internal/api"
)

// reserve is the number of descriptors for listeners, gossip, files and the admin API.
const reserve = 64

// busy is the share of descriptors in use above which there is a warning.
const busy = 0.8

// carried is the divisor of --max-in-flight: there must be room for a tenth of it, because
// the default is far above what a relay carries at a time.
const carried = 10

// room returns how many requests can be in flight before the limit is reached.
func (d Descriptors) room() int { return max(0, d.Limit-reserve-d.Links) / 2 }

// descriptors checks that each process may open the files that its plans need. A request
// holds two, that of the client and that of the worker.
func descriptors(f *Fleet) (found []api.Finding) {
	for _, one := range f.all() {
		d := one.Descriptors
		if d.Limit <= 0 {
			continue
		}
		finding := api.Finding{
			Subject: one.Relay, Page: page("open-files"),
			Remedy: fmt.Sprintf("raise the limit of open files for %s to %d or more: LimitNOFILE= in its unit, ulimits in its container, `ulimit -n`", one.Relay, suggested(d)),
		}
		switch {
		case d.Limit < d.Links+reserve:
			finding.Status = api.Failed
			finding.Text = fmt.Sprintf("%s may have %d files open, has %d, and its plans want %s", one.Relay, d.Limit, d.Open, plural(d.Links, "connection", "connections"))
			finding.Cause = "connections that the plans want fail for want of descriptors, and so do those of clients"
		case float64(d.Open) > busy*float64(d.Limit):
			finding.Status = api.Warning
			finding.Text = fmt.Sprintf("%s has %d of %d files open", one.Relay, d.Open, d.Limit)
			finding.Cause = "at the limit it accepts no connection any more"
		case d.room() < d.Requests/carried:
			finding.Status = api.Warning
			finding.Text = fmt.Sprintf("%s has an open-file limit of %d: after %s of its plans it leaves %s at a time, and --max-in-flight is %d",
				one.Relay, d.Limit, plural(d.Links, "connection", "connections"), plural(d.room(), "request", "requests"), d.Requests)
			finding.Cause = "each request holds a connection of the client and one of the worker; it fails at the limit of files before --max-in-flight refuses it well"
			finding.Remedy += ", or lower --max-in-flight"
		default:
			continue
		}
		found = append(found, finding)
	}
	return found
}

func suggested(d Descriptors) int { return max(2*d.Open, d.Links+2*d.Requests+1000) }

func fineDescriptors(f *Fleet) string {
	d := f.Self.Descriptors
	if d.Limit <= 0 {
		return "this system does not report its open-file limit"
	}
	return fmt.Sprintf("every relay has enough open files left; this one has %d of %d open, room for %d requests at a time", d.Open, d.Limit, d.room())
}
