package relay

import (
	"net/http"
	"strconv"
	"time"

	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/relay/requestlog"
	"github.com/ringway/ringway/internal/wire"
)

const (
	// tapWrite is the time limit for writing one record to a reader.
	tapWrite = 10 * time.Second
	// tapReport is how often dropped records are reported while no record comes.
	tapReport = time.Second
)

// tap streams the records of a service, or of all, that match the query ?where= as JSON lines, until
// the client disconnects or the server ends. If the client is too slow, a separate line has
// the number of the dropped records. The header names this relay, because an address of
// loopback may lead to another one.
func (r *Relay) tap(w http.ResponseWriter, req *http.Request, service string) {
	where, err := requestlog.ParseFilter(req.URL.Query().Get("where"))
	if err != nil {
		node.WriteError(w, http.StatusBadRequest, err.Error())
		return
	}
	tap, ok := r.records.Tap(service, where)
	if !ok {
		node.WriteError(w, http.StatusServiceUnavailable, "this relay has as many taps as it allows: end one of them")
		return
	}
	defer tap.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set(wire.RelayHeader, r.cfg.Membership.ID)
	control := http.NewResponseController(w)
	send := func(line []byte) bool {
		_ = control.SetWriteDeadline(time.Now().Add(tapWrite)) // if the writer has no deadlines, the write ends with the connection
		_, err := w.Write(line)
		return err == nil && (len(tap.Lines()) > 0 || control.Flush() == nil)
	}
	report := func() bool {
		n := tap.Dropped()
		return n == 0 || send(strconv.AppendInt([]byte(`{"ringway.tap.dropped":`), n, 10)) && send([]byte("}\n"))
	}
	w.WriteHeader(http.StatusOK)
	if control.Flush() != nil {
		return
	}
	tick := time.NewTicker(tapReport)
	defer tick.Stop()
	for {
		select {
		case line := <-tap.Lines():
			if !report() || !send(line) {
				return
			}
		case <-tick.C:
			if !report() {
				return
			}
		case <-req.Context().Done():
			return
		}
	}
}
