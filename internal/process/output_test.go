package process_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/process"
)

// disk is an output that has room for some bytes.
type disk struct {
	bytes.Buffer
	room int
}

var errFull = errors.New("no space left on device")

func (d *disk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	d.Buffer.Write(p[:n])
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// blocked is an output that takes nothing until released.
type blocked struct {
	bytes.Buffer
	released chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.released
	return b.Buffer.Write(p)
}

func lost(queueFull, writeFailed int) *strings.Reader {
	return strings.NewReader(fmt.Sprintf(`# HELP ringway_log_lines_lost_total Lines of the log that were lost: queue_full (the reader of standard error is slower than the log, or does not read), write_failed (the reader has gone, or a disk is full). Requests are not affected.
# TYPE ringway_log_lines_lost_total counter
ringway_log_lines_lost_total{reason="queue_full"} %d
ringway_log_lines_lost_total{reason="write_failed"} %d
`, queueFull, writeFailed))
}

func TestEveryLineUntilCloseIsWrittenInOrder(t *testing.T) {
	var out, want bytes.Buffer
	o := process.NewOutput(process.OutputConfig{Out: &out})
	for i := range 10_000 {
		fmt.Fprintf(o, "line %d\n", i)
		fmt.Fprintf(&want, "line %d\n", i)
	}
	o.Close()
	if out.String() != want.String() {
		t.Errorf("%d bytes were written, want %d", out.Len(), want.Len())
	}
}

func TestALineThatAFullDiskHasCutIsFinishedAndLostLinesAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, reg := &disk{room: len("first\nsec")}, prometheus.NewRegistry()
		o := process.NewOutput(process.OutputConfig{Out: out, Registerer: reg})
		logger, err := process.NewLogger(o, "info", "json")
		if err != nil {
			t.Fatal(err)
		}
		o.ReportTo(logger)
		for _, line := range []string{"first\nsecond\nthird\n", "fourth\n"} {
			fmt.Fprint(o, line)
			synctest.Wait()
		}
		if err := testutil.GatherAndCompare(reg, lost(0, 2)); err != nil {
			t.Error(err)
		}
		out.room = 1 << 10
		fmt.Fprint(o, "fifth\n")
		synctest.Wait()
		o.Close()
		if got, want := out.String(), "first\nsecond\nfifth\n"; !strings.HasPrefix(got, want) || !strings.Contains(got, `"lost":2`) {
			t.Errorf("written: %q, want %q and a report of 2 lost lines", got, want)
		}
	})
}

func TestAnOutputThatTakesNothingDelaysOnlyClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, reg := &blocked{released: make(chan struct{})}, prometheus.NewRegistry()
		o := process.NewOutput(process.OutputConfig{Out: out, Registerer: reg})
		line := strings.Repeat("x", 1<<18-1) + "\n"
		fmt.Fprint(o, line)
		synctest.Wait() // this line is being written
		for range 4 + 3 {
			fmt.Fprint(o, line) // four fill the queue
		}
		o.Close()
		if err := testutil.GatherAndCompare(reg, lost(3, 0)); err != nil {
			t.Error(err)
		}
		close(out.released)
		synctest.Wait()
		if got := out.Len(); got != 5*len(line) {
			t.Errorf("%d bytes were written, want %d", got, 5*len(line))
		}
	})
}
