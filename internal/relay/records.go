package relay

import "github.com/ringway/ringway/internal/relay/requestlog"

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
