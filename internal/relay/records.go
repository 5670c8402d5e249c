package relay

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/requestlog"
	"github.com/ringway/ringway/internal/settings"
	"github.com/ringway/ringway/internal/wire"
)

// defaultRecords records every request, without its query, once there is a file.
// With a smaller sample, at most one line per second shows the slowest of the rest.
var defaultRecords = requestlog.Policy{Sample: 1, Slowest: 10, Path: requestlog.PathOnly}

// maxSlowest bounds the lines that wait for the end of ten seconds.
const maxSlowest = 1000

// maxExplanations bounds the memory for explanations, each of which has a few kilobytes.
const maxExplanations = 10_000

// declareRecords declares the settings for the records of requests.
func (s *Settings) declareRecords(set *settings.Set) {
	const records = "Request log"
	settings.String(set, &s.RequestLog, settings.Spec{Name: "request-log", Group: records, Placeholder: "FILE|-",
		Usage: "file that gets one line of JSON for each request, or - for standard output; a signal SIGHUP and relay reload open it again, for a rotation; without it requests are not recorded and X-Request-Id passes as it is"})
	policy := &s.Requests.Record
	settings.Float(set, &policy.Sample, settings.Spec{Name: "request-log-sample", Group: records, Reloadable: true,
		Usage: "share of the requests that is recorded, decided by their IDs, so that relays with the same share all record a request or none; errors, the relay's own answers and requests with more than one attempt always are"}, settings.Between(0.0, 1.0))
	settings.Duration(set, &policy.Slow, settings.Spec{Name: "request-log-slow", Group: records, Reloadable: true,
		Usage: "time from which on a request is always recorded, from its begin to its end; 0 disables this"}, settings.AtLeast(time.Duration(0)))
	settings.Int(set, &policy.Slowest, settings.Spec{Name: "request-log-slowest", Group: records, Reloadable: true,
		Usage: "requests of each ten seconds that are recorded because they are the slowest of those that are not recorded otherwise, by the time until an answer began; their lines come when the ten seconds are over; 0 is none"}, settings.Between(0, maxSlowest))
	settings.Int(set, &s.Explanations, settings.Spec{Name: "request-log-explain", Group: records,
		Usage: "requests in the sample of which the relay remembers in memory how their endpoints were chosen, for relay explain-request: the newest; each of them costs the time of a line of the log several times; 0 is none"}, settings.Between(0, maxExplanations))
	settings.Enum(set, &policy.Path, settings.Spec{Name: "request-log-path", Group: records, Reloadable: true,
		Usage: "how much of the target of a request is recorded: none, its path, or full, which is the query as well"}, requestlog.PathNone, requestlog.PathOnly, requestlog.PathFull)
}

// newRecords returns the log of requests. Without a file it only serves taps.
func newRecords(cfg *Config) (*requestlog.Log, error) {
	return requestlog.New(requestlog.Config{File: cfg.RequestLog, Logger: cfg.Logger, Registerer: cfg.Registry})
}

// reopenRecords opens the file of the request log again. If that fails, the relay continues
// with the file that it has.
func (r *Relay) reopenRecords() {
	switch err := r.records.Reopen(); {
	case errors.Is(err, requestlog.ErrBusy):
		r.cfg.Logger.Error("the old request log stays in use until its disk is faster", "err", err)
	case err != nil:
		r.cfg.Logger.Error("the old request log stays in use: correct its directory and reload again", "err", err)
	}
}

// endRecords writes the last records. A file that takes none causes no error of the relay.
func (r *Relay) endRecords() {
	if err := r.records.Close(); err != nil {
		r.cfg.Logger.Warn("the last records of requests were not written", "err", err)
	}
}

// explainRequest answers how the endpoints of a remembered request were chosen.
func (r *Relay) explainRequest(w http.ResponseWriter, req *http.Request) {
	if r.explained == nil {
		process.WriteError(w, http.StatusConflict, "this relay remembers no requests: set --request-log-explain and restart it")
		return
	}
	x, ok := r.explained.Of(req.PathValue("id"))
	if !ok {
		process.WriteError(w, http.StatusNotFound, fmt.Sprintf("request %.130q is not among those that this relay remembers: it was not in the sample, had no endpoint to choose, was not here, or is older than the newest %d", req.PathValue("id"), r.cfg.Explanations))
		return
	}
	process.WriteJSON(w, http.StatusOK, describeExplained(x))
}

func describeExplained(x *ingress.Explained) api.ExplainedRequest {
	a := api.ExplainedRequest{
		ID: x.ID, Relay: x.Relay, Service: x.Service, Time: x.Time, DurationMs: milliseconds(x.Total),
		Status: x.Status, Outcome: x.Outcome, Code: x.Code, Attempts: []api.ExplainedAttempt{},
	}
	for i, one := range x.Attempts {
		a.Attempts = append(a.Attempts, api.ExplainedAttempt{Endpoint: one.Endpoint, ChosenBy: one.Chosen, Status: one.Status, Failure: one.Failure, Decision: describeDecision(x.Decisions[i])})
	}
	return a
}

const (
	// tapReport is how often dropped records are reported while no record comes.
	tapReport = time.Second
	// tapPause is how long records wait for others after a write. A write for each record
	// wakes the reader each time, which costs both more than the request.
	tapPause = 50 * time.Millisecond
)

// tap streams the records of a service, or of all, that match the query ?where= as JSON lines, until
// the client disconnects or the server ends. If the client is too slow, a separate line has
// the number of the dropped records. The header names this relay, because an address of
// loopback may lead to another one.
func (r *Relay) tap(w http.ResponseWriter, req *http.Request, service string) {
	where, err := requestlog.ParseFilter(req.URL.Query().Get("where"))
	if err != nil {
		process.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	tap, ok := r.records.Tap(service, where)
	if !ok {
		process.WriteError(w, http.StatusServiceUnavailable, "this relay has as many taps as it allows: end one of them")
		return
	}
	defer tap.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(wire.RelayHeader, r.cfg.Membership.ID)
	stream := process.NewStream(w, process.ReaderPause)
	defer stream.Close()
	var batch []byte
	// send writes the batch and the number of the records that were dropped, if there are any.
	send := func() bool {
		if n := tap.Dropped(); n > 0 {
			batch = append(strconv.AppendInt(append(batch, `{"ringway.tap.dropped":`...), n, 10), "}\n"...)
		}
		if len(batch) == 0 {
			return true
		}
		_, err := stream.Write(batch)
		batch = batch[:0]
		return err == nil && stream.Flush() == nil
	}
	w.WriteHeader(http.StatusOK)
	if stream.Flush() != nil {
		return
	}
	tick := time.NewTicker(tapReport)
	defer tick.Stop()
	for {
		select {
		case line := <-tap.Lines():
			batch = append(batch, line...)
			for range len(tap.Lines()) {
				batch = append(batch, <-tap.Lines()...)
			}
			if !send() {
				return
			}
			select {
			case <-time.After(tapPause):
			case <-req.Context().Done():
				return
			}
		case <-tick.C:
			if !send() {
				return
			}
		case <-req.Context().Done():
			return
		}
	}
}
