package membership

import (
	"bytes"
	"context"
	"log"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// logBridge takes memberlist's log lines, "[WARN] memberlist: text", apart. They
// are kept at debug: much of what memberlist warns of is caused by strangers or
// is ordinary churn, and what matters is reported by this package in the words
// of its operators. Warnings and errors are counted.
type logBridge struct {
	logger   *slog.Logger
	problems prometheus.Counter
}

func newMemberlistLogger(logger *slog.Logger, problems prometheus.Counter) *log.Logger {
	return log.New(logBridge{logger, problems}, "", 0)
}

func (b logBridge) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	level := ""
	if rest, ok := bytes.CutPrefix(text, []byte("[")); ok {
		if name, after, ok := bytes.Cut(rest, []byte("] ")); ok {
			level, text = string(name), after
		}
	}
	if level == "WARN" || level == "ERR" {
		b.problems.Inc()
	}
	if b.logger.Enabled(context.Background(), slog.LevelDebug) {
		b.logger.Debug("gossip: "+string(bytes.TrimPrefix(text, []byte("memberlist: "))), "memberlist_level", level)
	}
	return len(line), nil
}
