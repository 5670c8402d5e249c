package demo

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/screen"
)

// display shows frames and events.
type display interface {
	show(frame) error
	// event is called with each kill and each replacement.
	event(text string) error
}

// lineDisplay prints one line for each frame and each event.
type lineDisplay struct{ out io.Writer }

func (d lineDisplay) show(f frame) error {
	text := f.line()
	for _, r := range f.Relays {
		if r.Silent {
			text += "  " + r.ID + didNotAnswer
		}
	}
	_, err := fmt.Fprintln(d.out, text)
	return err
}

func (d lineDisplay) event(text string) error {
	_, err := fmt.Fprintln(d.out, "        "+text)
	return err
}

// tableDisplay redraws a table in place.
type tableDisplay struct {
	screen.Screen
	events []string
	last   frame
}

// shownEvents is how many events stay visible.
const shownEvents = 4

// newTableDisplay returns a display on a terminal to which out writes.
func newTableDisplay(out io.Writer, terminal *os.File) *tableDisplay {
	return &tableDisplay{Screen: screen.Screen{Out: out, Size: screen.SizeOf(terminal)}}
}

func (d *tableDisplay) show(f frame) error {
	d.last = f
	f.Events = d.events
	_, height := d.Size()
	return d.Draw(f.table(height))
}

func (d *tableDisplay) event(text string) error {
	d.events = append(d.events, text)
	d.events = d.events[max(0, len(d.events)-shownEvents):]
	if d.last.Elapsed == 0 { // there is no frame yet
		return nil
	}
	return d.show(d.last)
}

// frame is the state of the demo at one moment, ready for display.
type frame struct {
	// Elapsed is the time since the start of the load.
	Elapsed time.Duration
	// PerSecond, P50 and P99 were measured in the last window; the counts are of the whole run.
	PerSecond                 float64
	Requests, Errors, Retries uint64
	P50, P99                  time.Duration
	Relays                    []relayRow
	Rows                      []row
	// Events are the newest kills and replacements, oldest first.
	Events []string
}

// relayRow is one relay and how many workers it is connected to.
type relayRow struct {
	relayAddress
	Workers int
	Silent  bool // it did not answer
}

// didNotAnswer follows the id of a relay whose state is older than the frame.
const didNotAnswer = " did not answer"

// row is one worker.
type row struct {
	Worker    string
	Relays    int // connected to it
	PerSecond float64
	EWMAms    float64 // mean over the relays connected to it
	InFlight  int
	State     string
}

// rank is lower for a worker that is more remarkable.
func (r row) rank() int {
	switch {
	case strings.HasPrefix(r.State, killedText):
		return 0
	case r.State != stateActive:
		return 1
	}
	return 2
}

// newRows joins the counts of the clients with the views of the relays.
func newRows(workers []string, w window, views []relayView) []row {
	peers := map[string][]api.Peer{}
	for _, v := range views {
		if !v.affine() {
			continue
		}
		for _, p := range v.Peers {
			peers[p.Node] = append(peers[p.Node], p)
		}
	}
	rows := make([]row, len(workers))
	for i, id := range workers {
		r := row{Worker: id, State: state(peers[id])}
		if w.Seconds > 0 {
			r.PerSecond = float64(w.Worker[id]) / w.Seconds
		}
		for _, p := range peers[id] {
			r.EWMAms += p.EWMAms / float64(len(peers[id]))
			r.InFlight += p.InFlight
			if p.Connected {
				r.Relays++
			}
		}
		rows[i] = r
	}
	return rows
}

// stateActive is the state of a worker that gets its share of requests.
const stateActive = "active"

// state is the state of a worker as the relays connected to it report it: the common one,
// or the different ones with the number of relays for each.
func state(peers []api.Peer) string {
	if len(peers) == 0 {
		return "absent"
	}
	count := map[string]int{}
	for _, p := range peers {
		count[p.State]++
	}
	if len(count) == 1 {
		return peers[0].State
	}
	var parts []string
	for s, n := range count {
		if s != stateActive {
			parts = append(parts, fmt.Sprintf("%s %d/%d", s, n, len(peers)))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// killedFor is how long the row of a worker shows that it was killed. Its replacement is
// active after a second, which is too short to be seen.
const killedFor = 10 * time.Second

const killedText = "killed "

// killedState returns the state of a worker that was killed and may be replaced by now.
func killedState(now string, at time.Time) string {
	text := killedText + at.Format(time.TimeOnly)
	if now == stateActive {
		return text + ", active again"
	}
	return text
}

// line formats the frame as one line, for logs and pipes.
func (f frame) line() string {
	return fmt.Sprintf("%5.0fs  %6.1f req/s  %d errors  %d retries  p50 %s  p99 %s",
		f.Elapsed.Seconds(), f.PerSecond, f.Errors, f.Retries, shortMS(f.P50), shortMS(f.P99))
}

func shortMS(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// table formats the frame as lines. Rows are omitted for which a terminal of this height has no room;
// 0 is unlimited. Then the last row has their number, and workers that are not simply active come
// first. The lines of relays fit a terminal of 80 characters.
func (f frame) table(height int) []string {
	lines := []string{strings.TrimSpace(f.line()), ""}
	for _, r := range f.Relays {
		state := fmt.Sprintf(" %d of %d workers", r.Workers, len(f.Rows))
		if r.Silent {
			state = didNotAnswer
		}
		lines = append(lines, fmt.Sprintf("%-8s%s  %s  admin %s", r.ID, state, r.Ingress, r.Admin))
	}
	if len(f.Relays) > 0 {
		lines = append(lines,
			fmt.Sprintf("try      curl -H 'Ringway-Service: %s' %s/", service, f.Relays[0].Ingress),
			fmt.Sprintf("         curl %s/api/v1/services/%s/plan", f.Relays[0].Admin, service))
	}
	lines = append(lines, "", fmt.Sprintf("%-12s %6s %9s %9s %9s  %s", "WORKER", "RELAYS", "REQ/S", "EWMA MS", "IN FLIGHT", "STATE"))
	below := []string{}
	if len(f.Events) > 0 {
		below = append(below, "", strings.Join(f.Events, "   "))
	}
	rows := f.Rows
	if room := height - len(lines) - len(below) - 1; height > 0 && len(rows) > room { // one line for the cursor
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.rank(), b.rank()) })
		rows = rows[:max(room-1, 0)]
	}
	for _, r := range rows {
		lines = append(lines, fmt.Sprintf("%-12s %6d %9.1f %9.2f %9d  %s", r.Worker, r.Relays, r.PerSecond, r.EWMAms, r.InFlight, r.State))
	}
	if hidden := len(f.Rows) - len(rows); hidden > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", hidden))
	}
	return append(lines, below...)
}
