package relay

import (
	"fmt"
	"net/http"

	"github.com/ringway/ringway/internal/node"
	"github.com/ringway/ringway/internal/relay/requestlog"
)

// newRecords returns the log of requests. Without a file it only serves taps.
func newRecords(cfg *Config) (*requestlog.Log, error) {
	return requestlog.New(requestlog.Config{File: cfg.RequestLog, Logger: cfg.Logger, Registerer: cfg.Registry})
}

// reopenRecords opens the file of the request log again. If that fails, the relay continues
// with the file that it has.
func (r *Relay) reopenRecords() {
	if err := r.records.Reopen(); err != nil {
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
		node.WriteError(w, http.StatusConflict, "this relay remembers no requests: set --request-log-explain and restart it")
		return
	}
	x, ok := r.explained.Of(req.PathValue("id"))
	if !ok {
		node.WriteError(w, http.StatusNotFound, fmt.Sprintf("request %.130q is not among those that this relay remembers: it was not in the sample, had no endpoint to choose, was not here, or is older than the newest %d", req.PathValue("id"), r.cfg.Explanations))
		return
	}
	node.WriteJSON(w, http.StatusOK, x)
}
