package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/membership/identity"
)

// TapCommand is `tap`: it prints the records of the requests of a service, live.
func TapCommand() *cobra.Command {
	c := &cobra.Command{Use: "tap SERVICE", Short: "show the requests of a service while they end, with their attempts", Args: arguments(cobra.ExactArgs(1)),
		Long: "Shows a record of each request of the service at one relay, or with --all at all relays\n" +
			"and gates that are alive when it starts. It works without --request-log and records\n" +
			"every request, whatever the sample of the log is. A reader that is too slow loses\n" +
			"records, and a line reports how many. Requests never wait.\n\n" +
			"--where selects records: comparisons of status, duration, method, caller, endpoint (of\n" +
			"any attempt) and code with =, !=, >=, <=, > and <, joined by &&. A text with a space or\n" +
			"a character of an operator needs quotes: caller=\"web 1\".\n\n" +
			"With --all a token is sent to the other relays only over TLS (--admin-tls-cert), because\n" +
			"any member could announce an address that collects tokens.\n\n" +
			"Ctrl-C ends it, which is no failure; the end of the relay is one.",
		Example: "  relay tap billing --where 'status>=500'\n  relay tap billing --all --where 'duration>=250ms'\n  relay tap billing -o json | jq -c '.[\"ringway.attempts\"]'"}
	call := relayCall(c.Flags(), formText, formJSON)
	c.ValidArgsFunction = call.completeServices
	where := c.Flags().String("where", "", "only records for which all comparisons hold, such as 'status>=500 && duration>1s'")
	all := c.Flags().Bool("all", false, "from all relays and gates, at the admin addresses that they announce")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := call.form.check(); err != nil {
			return err
		}
		out := bufio.NewWriter(cmd.OutOrStdout())
		t := &tap{
			path: "services/" + url.PathEscape(args[0]) + "/tap?where=" + url.QueryEscape(*where),
			take: call.recordWriter(out), flush: out.Flush, notes: cmd.ErrOrStderr(),
		}
		return untilInterrupted(cmd, func(ctx context.Context) error { return t.run(ctx, call, *all) })
	}
	return c
}

// tap reads the streams of one or more relays.
type tap struct {
	path string

	mu    sync.Mutex // held while take, flush or notes are used
	take  func(line []byte) error
	flush func() error // of what take has written
	notes io.Writer
}

// run reads one stream, or those of all relays until all have ended.
func (t *tap) run(ctx context.Context, call *adminCall, all bool) error {
	if !all {
		return t.read(ctx, call, "")
	}
	members, err := call.living(ctx, identity.RoleRelay, identity.RoleGate)
	if err != nil {
		return err
	}
	var reading sync.WaitGroup
	errs := make([]error, len(members.Members))
	for i, m := range members.Members {
		reading.Go(func() {
			errs[i] = t.readMember(ctx, call, m, m.ID == members.Self)
			if ctx.Err() == nil {
				t.note("%s: %s", m.ID, errs[i])
			}
		})
	}
	reading.Wait()
	return fmt.Errorf("the streams of all %d relays have ended", len(errs))
}

// readMember reads the stream of a relay. The one that listed the members is asked where it
// answered. The others announce their addresses, and an announcement may be forged: such an
// address gets a token only if a certificate proves that the member is there.
func (t *tap) readMember(ctx context.Context, call *adminCall, m api.ListedMember, self bool) error {
	other, err := call.ofMember(m, self)
	if err != nil {
		return err
	}
	return t.read(ctx, other, m.ID)
}

// ofMember returns the call for a member that another one has listed; self is the one that
// has listed them.
func (c *adminCall) ofMember(m api.ListedMember, self bool) (*adminCall, error) {
	other := *c
	if self {
		return &other, nil
	}
	if m.AdminAddr == "" {
		return nil, errors.New("it announces no admin address, because its admin API is on a unix socket: run the command on its host")
	}
	other.admin, other.at = nil, m.AdminAddr
	other.announced = identity.Expected{Node: m.ID, Role: m.Role, Addr: m.AdminAddr}
	return &other, nil
}

// is returns an error if another relay answers than that with the ID; an empty ID is any.
func (c *adminCall) is(id string) func(relay string) error {
	return func(relay string) error {
		if id != "" && relay != id {
			return fmt.Errorf("%q answers at %s: an address of loopback reaches only relays of this host", relay, c.addr())
		}
		return nil
	}
}

// living lists the members of these roles that answer requests.
func (c *adminCall) living(ctx context.Context, roles ...identity.Role) (*MembersDocument, error) {
	filter := memberFilter{states: []string{string(api.MemberAlive), string(api.MemberDraining)}}
	for _, role := range roles {
		filter.roles = append(filter.roles, string(role))
	}
	return c.members(ctx, filter)
}

// atAll calls do for all members of these roles, one after the other, with the ID of the member that
// must answer. A member that cannot be asked does not end the command. If all that fails is that
// nothing matched at members, this is the error.
func (c *adminCall) atAll(ctx context.Context, notes io.Writer, roles []identity.Role, do func(ctx context.Context, call *adminCall, id string) error) error {
	members, err := c.living(ctx, roles...)
	if err != nil {
		return err
	}
	failed, unmatched := 0, 0
	for _, m := range members.Members {
		other, err := c.ofMember(m, m.ID == members.Self)
		if err == nil {
			err = do(ctx, other, m.ID)
		}
		if ctx.Err() != nil {
			return err
		}
		if err != nil {
			failed++
			if errors.Is(err, ErrNothingMatched) {
				unmatched++
			}
			fmt.Fprintln(notes, process.Printable(fmt.Sprintf("%s: %s", m.ID, err)))
		}
	}
	switch {
	case failed == 0:
		return nil
	case failed == unmatched:
		return fmt.Errorf("%w at %d of %d relays", ErrNothingMatched, failed, len(members.Members))
	}
	return fmt.Errorf("%d of %d relays have failed", failed, len(members.Members))
}

// read reads a stream until ctx or the stream ends. If id is not empty, no other relay may answer.
func (t *tap) read(ctx context.Context, call *adminCall, id string) error {
	flush := func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.flush()
	}
	defer func() { _ = flush() }() // of the records before one that is none
	return call.followFrom(ctx, t.path, follower{
		check: call.is(id),
		take: func(line []byte) error {
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.take(line)
		},
		pause: flush,
	})
}

// note reports something about a stream next to the records.
func (t *tap) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.notes, process.Printable(fmt.Sprintf(format, args...)))
}

// tapped has the fields of a record that people see.
type tapped struct {
	Time    time.Time `json:"timestamp"`
	ID      string    `json:"ringway.request.id"`
	Relay   string    `json:"ringway.relay"`
	From    string    `json:"ringway.forwarded_by"`
	Caller  string    `json:"ringway.caller"`
	Carrier string    `json:"network.transport"` // tcp for a session
	Method  string    `json:"http.request.method"`
	Path    string    `json:"url.path"`
	Query   string    `json:"url.query"`
	Status  int       `json:"http.response.status_code"`
	Call    string    `json:"rpc.response.status_code"`
	Outcome string    `json:"ringway.outcome"`
	Code    string    `json:"error.type"`
	Total   float64   `json:"ringway.duration_ms"`
	// FirstByte is 0 without an answer of an endpoint.
	FirstByte float64 `json:"ringway.first_byte_ms"`
	Attempts  []struct {
		Endpoint string `json:"endpoint"`
		Failure  string `json:"failure"`
	} `json:"ringway.attempts"`
	Dropped int `json:"ringway.tap.dropped"`
}

// failed reports whether the request is an error, as the request log defines it.
func (r *tapped) failed() bool {
	switch r.Call {
	case "UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS":
		return true
	}
	return r.Status >= 500 || r.Code != "" || r.Outcome == "aborted"
}

// recordWriter returns a function that writes records in the selected form.
func (c *adminCall) recordWriter(out io.Writer) func(line []byte) error {
	if c.output == formJSON {
		return c.lineWriter(out)
	}
	return func(line []byte) error {
		var r tapped
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("the relay sent a line that is no record: %w", err)
		}
		_, err := fmt.Fprintln(out, r.text())
		return err
	}
}

// text returns one line: time, relay, result, request, duration, way, caller, ID.
func (r *tapped) text() string {
	if r.Dropped > 0 {
		return fmt.Sprintf("%d records were dropped, because they were not read fast enough", r.Dropped)
	}
	words := []string{r.Time.Local().Format("15:04:05.000")}
	add := func(texts ...string) {
		for _, text := range texts {
			if text != "" {
				words = append(words, process.Printable(text))
			}
		}
	}
	add(r.Relay)
	switch {
	case r.Code != "":
		add(strconv.Itoa(r.Status), r.Code)
	case r.Status == 0 || r.Outcome == "aborted":
		add(strconv.Itoa(r.Status), r.Outcome)
	case r.Call != "":
		add(r.Call)
	default:
		add(strconv.Itoa(r.Status))
	}
	target := r.Path
	if r.Query != "" {
		target += "?" + r.Query
	}
	if r.Carrier == "tcp" {
		target = "TCP session"
	}
	add(r.Method, target, strconv.FormatFloat(r.Total, 'f', 3, 64), "ms")
	if r.From != "" {
		add("from", r.From)
	}
	var way []string
	for _, a := range r.Attempts {
		if a.Failure != "" {
			a.Endpoint += " (" + a.Failure + ")"
		}
		way = append(way, process.Printable(a.Endpoint))
	}
	if len(way) > 0 {
		add("by")
		words = append(words, strings.Join(way, ", "))
	}
	if r.Caller != "" {
		add("for", r.Caller)
	}
	add(r.ID)
	return strings.Join(words, " ")
}
