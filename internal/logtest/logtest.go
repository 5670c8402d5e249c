// Package logtest reads for tests what a component shows of itself: its log and its
// metrics.
//
// Promise: both may be read while the component writes.
//
// Rules: only tests import it, and the packages for tests.
package logtest

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Log is a log that is read while it is written.
type Log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// Lines returns how many lines have a text.
func (l *Log) Lines(text string) (n int) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Value returns the value of one series of a metric, which must exist. Its labels are as for
// Series.
func Value(t testing.TB, from prometheus.Gatherer, metric, labels string) float64 {
	t.Helper()
	value, there := Series(t, from, metric)[labels]
	if !there {
		t.Fatalf("no metric %s{%s}", metric, labels)
	}
	return value
}

// Series returns the series of a metric by the values of their labels, which are in the
// order of the names of the labels and separated by commas. The value of a histogram is the
// number of observations.
func Series(t testing.TB, from prometheus.Gatherer, metric string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]float64{}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() { // sorted by name
				labels = append(labels, l.GetValue())
			}
			series[strings.Join(labels, ",")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return series
}
