package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
)

// TopDocument is the document of `top -o json`.
type TopDocument struct {
	Relay string `json:"relay"`
	By    string `json:"by"`
	// WindowMs is the time over which everything was counted, in milliseconds.
	WindowMs int64        `json:"window_ms"`
	Rows     []api.TopRow `json:"rows"`
	// Dropped is how many records the relay could not pass on, with --by caller: the numbers
	// are too low by these.
	Dropped uint64 `json:"dropped,omitempty"`
}

// latencyOf returns the time by which rows are sorted.
func latencyOf(r *api.TopRow) float64 { return max(r.P99Ms, r.EWMAMs) }

// What the rows of top can be.
const (
	byService = "service"
	byWorker  = "worker"
	byCaller  = "caller"
)

// topOrders are the orders of rows. Rows that are equal in an order are sorted by name.
var topOrders = map[string]func(a, b *api.TopRow) int{
	"requests":  func(a, b *api.TopRow) int { return cmp.Compare(b.Requests, a.Requests) },
	"errors":    func(a, b *api.TopRow) int { return cmp.Compare(b.Errors, a.Errors) },
	"in-flight": func(a, b *api.TopRow) int { return cmp.Compare(known(b.InFlight), known(a.InFlight)) },
	"latency":   func(a, b *api.TopRow) int { return cmp.Compare(latencyOf(b), latencyOf(a)) },
	"name":      func(*api.TopRow, *api.TopRow) int { return 0 },
}

func known(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// TopCommand is `top`: the traffic of a relay by service, worker or caller, live.
func TopCommand() *cobra.Command {
	c := &cobra.Command{Use: "top [SERVICE]", Short: "show the traffic of a relay by service, worker or caller, live", Args: arguments(cobra.MaximumNArgs(1)),
		Long: "Shows what one relay carries, in windows of --interval. It reads counters that the relay\n" +
			"has anyway, so watching delays no request.\n\n" +
			"By service, requests that other relays forward to this one are included, and P50 and P99\n" +
			"are estimated from a histogram of the time until an answer began. By worker, attempts\n" +
			"are counted, and the latency is the moving average by which workers are picked; the rows\n" +
			"of a service that is forwarded are relays.\n\n" +
			"By caller, the relay makes a record of each request for this command, as for relay tap,\n" +
			"and the command counts them: this costs as much as a line of the request log per request\n" +
			"and counts as one of the taps of the relay. The command is a sample if requests come\n" +
			"faster than it reads: a line has the number of records that it did not get. A session\n" +
			"counts when it ends.\n\n" +
			"A terminal is redrawn until Ctrl-C, otherwise one table follows the other.",
		Example: "  relay top\n  relay top billing --by caller --sort errors\n  relay top --by worker --once -o json | jq '.rows[] | select(.state != \"active\")'"}
	call := relayCall(c.Flags())
	c.ValidArgsFunction = call.completeServices
	t := &top{call: call}
	c.Flags().StringVar(&t.by, "by", byService, "rows: "+byService+", "+byWorker+" or "+byCaller)
	c.Flags().StringVar(&t.sort, "sort", "requests", "first row: that with the most requests, errors, in-flight or latency; or name")
	once := c.Flags().Bool("once", false, "show one window and end")
	c.Flags().DurationVar(&call.interval, "interval", watchEvery, "length of a window, "+leastInterval.String()+" or more")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := t.check(); err != nil {
			return err
		}
		if len(args) > 0 {
			t.service = args[0]
		}
		call.watch.on = !*once
		ctx, cancel := context.WithCancel(cmd.Context())
		defer t.close()
		defer cancel()
		cmd.SetContext(ctx)
		return getDocument(cmd, call, t.next, topTable)
	}
	return c
}

// top makes the rows of one window after the other.
type top struct {
	call              *adminCall
	by, sort, service string

	last    *api.Traffic // by service and worker: the counters at the end of the last window
	at      time.Time    // the end of the last window
	callers *callers     // by caller: what is counted since at
}

func (t *top) check() error {
	if t.call.interval < leastInterval {
		return fmt.Errorf("--interval %q: allowed are %s and more", t.call.interval, leastInterval)
	}
	return errors.Join(oneOf("--by", []string{t.by}, byService, byWorker, byCaller),
		oneOf("--sort", []string{t.sort}, "requests", "errors", "in-flight", "latency", "name"))
}

// next returns the next window, when it has ended.
func (t *top) next(ctx context.Context) (*TopDocument, error) {
	if t.by == byCaller {
		return t.nextCallers(ctx)
	}
	if t.last == nil {
		if err := t.begin(ctx); err != nil {
			return nil, err
		}
	}
	if err := t.wait(ctx); err != nil {
		return nil, err
	}
	before, began := t.last, t.at
	t.last = nil // if this fails, begin again
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	if before.Relay != t.last.Relay || before.UptimeMs > t.last.UptimeMs {
		before = &api.Traffic{} // another process: it has counted from 0
	}
	if t.service != "" && t.last.Find(t.service) == nil {
		return nil, fmt.Errorf("%w: %s knows no service %q", ErrNothingMatched, t.last.Relay, t.service)
	}
	doc := &TopDocument{Relay: t.last.Relay, By: t.by, WindowMs: t.at.Sub(began).Milliseconds()}
	if t.by == byService {
		doc.Rows = api.ServiceRows(before, t.last)
	} else {
		doc.Rows = api.WorkerRows(before, t.last, t.service)
	}
	if t.by == byService && t.service != "" {
		doc.Rows = slices.DeleteFunc(doc.Rows, func(r api.TopRow) bool { return r.Name != t.service })
	}
	t.finish(doc, t.at.Sub(began))
	return doc, nil
}

// begin reads the counters.
func (t *top) begin(ctx context.Context) error {
	path := "traffic"
	if t.by == byWorker {
		path += "?peers=1"
	}
	var now api.Traffic
	if _, err := t.call.fetch(ctx, http.MethodGet, path, nil, &now); err != nil {
		return err
	}
	t.last, t.at = &now, time.Now()
	return nil
}

// wait waits until the window has its length.
func (t *top) wait(ctx context.Context) error {
	select {
	case <-time.After(t.call.interval - time.Since(t.at)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finish adds the rates and sorts the rows.
func (t *top) finish(doc *TopDocument, window time.Duration) {
	api.RateRows(doc.Rows, window)
	order := topOrders[t.sort]
	slices.SortFunc(doc.Rows, func(a, b api.TopRow) int { return cmp.Or(order(&a, &b), process.Natural(a.Name, b.Name)) })
}

func (t *top) close() {
	if t.callers != nil {
		t.callers.close()
	}
}

func topTable(p *page, doc *TopDocument) {
	columns := []string{strings.ToUpper(doc.By), ">REQ/S", ">ERR/S"}
	switch doc.By {
	case byService:
		columns = append(columns, ">IN FLIGHT", ">SESSIONS", ">P50", ">P99", "STATE")
	case byWorker:
		columns = append(columns, ">IN FLIGHT", ">LATENCY", "STATE")
	default:
		columns = append(columns, ">P50", ">P99")
	}
	t := p.table(append(columns, "+>REQUESTS", "+>FAILED")...)
	for _, r := range doc.Rows {
		failing := cell{rateText(r.ErrorsPerSecond), plain}
		if r.Errors > 0 {
			failing.style = styleBad
		}
		row := []any{r.Name, rateText(r.RequestsPerSecond), failing}
		switch doc.By {
		case byService:
			row = append(row, fmt.Sprint(known(r.InFlight)), fmt.Sprint(known(r.Sessions)), latency(r.P50Ms), latency(r.P99Ms), cell{r.State, styleFair})
		case byWorker:
			row = append(row, fmt.Sprint(known(r.InFlight)), latency(r.EWMAMs), stateCell(r.State))
		default:
			row = append(row, latency(r.P50Ms), latency(r.P99Ms))
		}
		t.add(append(row, fmt.Sprint(r.Requests), fmt.Sprint(r.Errors))...)
	}
	note := fmt.Sprintf("%s over %s", doc.Relay, (time.Duration(doc.WindowMs) * time.Millisecond).Round(10*time.Millisecond))
	if doc.Dropped > 0 {
		note += fmt.Sprintf("; %d more requests were dropped and are not counted", doc.Dropped)
	}
	t.write(note)
}
