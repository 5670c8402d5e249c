package requestlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/logtest"
)

// newLog returns a log that is not started.
func newLog(t *testing.T, file string) (*Log, *logtest.Log) {
	t.Helper()
	out := &logtest.Log{}
	l, err := New(Config{File: file, Logger: slog.New(slog.NewTextHandler(out, nil)), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, out
}

func start(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
}

func (l *Log) count(reason string) int { return int(testutil.ToFloat64(l.dropped[reason])) }

// idsIn reads the IDs of all lines; each line must be whole.
func idsIn(t *testing.T, text []byte) (ids []string) {
	t.Helper()
	if len(text) > 0 && text[len(text)-1] != '\n' {
		t.Errorf("the last line has no end: %q", text[max(0, len(text)-100):])
	}
	for line := range bytes.Lines(text) {
		var got struct {
			ID string `json:"ringway.request.id"`
		}
		if err := json.Unmarshal(line, &got); err != nil || got.ID == "" {
			t.Fatalf("%v in %q", err, line)
		}
		ids = append(ids, got.ID)
	}
	return ids
}

func TestARotationLosesAndTearsNoLine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "requests.log")
	l, _ := newLog(t, path)
	start(t, l)
	const writers, each, rotations = 4, 2000, 5
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				l.Add(&Record{ID: fmt.Sprint(w, "-", i), Path: strings.Repeat("p", 200)}, true)
			}
		})
	}
	for i := range rotations {
		if err := os.Rename(path, fmt.Sprint(path, ".", i)); err != nil {
			t.Fatal(err)
		}
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			t.Fatal("the new file is not there when Reopen has returned: ", err)
		}
	}
	writing.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(path + "*")
	seen := map[string]int{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range idsIn(t, text) {
			seen[id]++
		}
	}
	if len(files) != rotations+1 || len(seen) != writers*each {
		t.Errorf("%d files with %d records, want %d with %d", len(files), len(seen), rotations+1, writers*each)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is there %d times", id, n)
		}
	}
	if n := testutil.ToFloat64(l.reopens[true]); n != rotations {
		t.Errorf("%v reopens are counted", n)
	}
	if n := testutil.ToFloat64(l.written); n != writers*each {
		t.Errorf("%v records are counted", n)
	}
}

func TestAFileThatCannotBeOpenedAgainStaysInUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, _ := newLog(t, filepath.Join(dir, "requests.log"))
	start(t, l)
	moved := dir + ".old"
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); err == nil || !strings.Contains(err.Error(), "create it") {
		t.Error(err)
	}
	l.Add(&Record{ID: "kept"}, true)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(moved, "requests.log"))
	if ids := idsIn(t, text); err != nil || len(ids) != 1 {
		t.Errorf("%v, %v", ids, err)
	}
	if testutil.ToFloat64(l.reopens[false]) != 1 {
		t.Error("the failure is not counted")
	}
}

// disk is a file with room for a number of bytes.
type disk struct {
	mu   sync.Mutex
	room int
	text []byte
	gate chan struct{} // nil, or what a write waits for
}

var errFull = errors.New("no space left on device")

func (d *disk) Write(p []byte) (int, error) {
	if d.gate != nil {
		<-d.gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(p), d.room)
	d.room -= n
	d.text = append(d.text, p[:n]...)
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

func (d *disk) Close() error { return nil }

func (d *disk) taken() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return bytes.Clone(d.text)
}

func TestAFullDiskIsCountedAndLoggedOnceAndLeavesWholeLines(t *testing.T) {
	for _, room := range []int{0, 1, 100, 250, 400, 1000} {
		t.Run(fmt.Sprint(room, " bytes of room"), func(t *testing.T) {
			d := &disk{room: room}
			l, log := newLog(t, filepath.Join(t.TempDir(), "requests.log"))
			o := &output{log: l, file: d}
			const batches, perBatch = 5, 3
			added := 0
			batch := func() {
				var lines []byte
				for range perBatch {
					lines = Append(lines, &Record{ID: fmt.Sprint("r", added)})
					added++
				}
				o.write(lines, perBatch)
			}
			for range batches {
				batch()
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), errFull.Error()) {
				t.Errorf("%d errors are logged:\n%s", n, log)
			}
			d.room = 1 << 20
			batch()
			o.close()
			if n := strings.Count(log.String(), "is written again"); n != 1 {
				t.Errorf("%d lines report that it works again:\n%s", n, log)
			}
			ids := idsIn(t, d.text)
			written, lost := int(testutil.ToFloat64(l.written)), l.count(dropWrite)
			if written != len(ids) || written+lost != added || ids[len(ids)-1] != fmt.Sprint("r", added-1) {
				t.Errorf("%d records are in the file, %d counted as written and %d as dropped, of %d: %v", len(ids), written, lost, added, ids)
			}
		})
	}
}

func TestANewFileDoesNotBeginWithTheRestOfALine(t *testing.T) {
	old, next := &disk{room: 30}, &disk{room: 1 << 20}
	l, _ := newLog(t, filepath.Join(t.TempDir(), "requests.log"))
	l.open = func(string) (io.WriteCloser, error) { return next, nil }
	o := &output{log: l, file: old}
	o.write(Append(nil, &Record{ID: "torn"}), 1)
	if err := o.reopen(); err != nil {
		t.Fatal(err)
	}
	o.write(Append(nil, &Record{ID: "whole"}), 1)
	if ids := idsIn(t, next.text); len(ids) != 1 || l.count(dropWrite) != 1 || testutil.ToFloat64(l.written) != 1 {
		t.Errorf("%v, %d dropped", ids, l.count(dropWrite))
	}
}

func TestAQueueThatOverflowsCountsDropsAndDelaysNoRequest(t *testing.T) {
	d := &disk{room: 1 << 30, gate: make(chan struct{})}
	l, _ := newLog(t, filepath.Join(t.TempDir(), "requests.log"))
	l.open = func(string) (io.WriteCloser, error) { return d, nil }
	start(t, l)
	r := Record{ID: "x", Path: strings.Repeat("p", 2000)}
	added := 0
	for l.count(dropFull) < 10 { // the file takes nothing meanwhile: an Add that waited would hang
		l.Add(&r, true)
		added++
	}
	close(d.gate)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	size := len(Append(nil, &r))
	if n := len(idsIn(t, d.text)); n+10 != added || n < queueBytes/size || n > 2*queueBytes/size+1 {
		t.Errorf("%d of %d records were written, 10 dropped", n, added)
	}
	l.Add(&r, true)
	if l.count(dropStopped) != 1 {
		t.Error("a record after Close is not counted")
	}
}

func TestOnlyAFileThatCanBeWrittenIsAccepted(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"": "", Stdout: "", file: "", filepath.Join(dir, "new"): "", os.DevNull: "",
		dir: "neither a file nor a terminal", filepath.Join(dir, "none", "log"): "create it", filepath.Join(file, "log"): "not a directory",
	} {
		err := CheckFile(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("the check has created the file")
	}
}

func TestATapOfAllServicesGetsEveryRequest(t *testing.T) {
	l, _ := newLog(t, "")
	tap, ok := l.Tap(AllServices, Filter{})
	if !ok || !l.Wants("billing") || !l.Wants("") {
		t.Error("not every record is wanted")
	}
	for _, r := range []Record{{ID: "a", Service: "billing"}, {ID: "b"}} {
		l.Add(&r, false)
		if ids := idsIn(t, <-tap.Lines()); ids[0] != r.ID {
			t.Errorf("%v, want %s", ids, r.ID)
		}
	}
	tap.Close()
}

func TestATapGetsWhatItsFilterSelectsOfItsService(t *testing.T) {
	l, _ := newLog(t, "")
	if l.Wants("billing") || (*Log)(nil).Wants("billing") {
		t.Error("without a file or a tap no record is wanted")
	}
	where, err := ParseFilter("status>=500")
	if err != nil {
		t.Fatal(err)
	}
	tap, ok := l.Tap("billing", where)
	if !ok || !l.Wants("billing") || l.Wants("search") || l.Writes() {
		t.Error("only the service of the tap is wanted")
	}
	for _, r := range []Record{{ID: "a", Service: "billing", Status: 200}, {ID: "b", Service: "billing", Status: 500}, {ID: "c", Service: "search", Status: 500}} {
		l.Add(&r, false)
	}
	for i := range tapLines + 3 {
		l.Add(&Record{ID: fmt.Sprint(i), Service: "billing", Status: 503}, true)
	}
	if n := tap.Dropped(); n != 4 || tap.Dropped() != 0 || l.count(dropTap) != 4 {
		t.Errorf("%d records were dropped, want 4", n)
	}
	if ids := idsIn(t, <-tap.Lines()); ids[0] != "b" || len(tap.Lines()) != tapLines-1 {
		t.Errorf("%v and %d more", ids, len(tap.Lines()))
	}
	var more []*Tap
	for {
		another, ok := l.Tap("search", Filter{})
		if !ok {
			break
		}
		more = append(more, another)
	}
	if len(more) != maxTaps-1 {
		t.Errorf("%d more taps are allowed", len(more))
	}
	tap.Close()
	if l.Wants("billing") || !l.Wants("search") {
		t.Error("the end of a tap ends the records of its service alone")
	}
	counted := 0
	counting := l.Count(func(*Record) { counted++ })
	l.Add(&Record{Service: "billing"}, false)
	counting.Close()
	l.Add(&Record{Service: "billing"}, false)
	if counted != 1 {
		t.Errorf("a count next to all taps has seen %d records, want 1", counted)
	}
	for _, another := range more {
		another.Close()
	}
	if l.Wants("search") {
		t.Error("a record is wanted after the last tap")
	}
}

func TestCloseDoesNotWaitForAFileThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: 1 << 20, gate: make(chan struct{})}
		l, err := New(Config{File: Stdout, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		l.open = func(string) (io.WriteCloser, error) { return d, nil }
		start(t, l)
		l.Add(&Record{ID: "x"}, true)
		began := time.Now()
		if err := l.Close(); err == nil || time.Since(began) != lastWrite {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(d.gate)
		<-l.done
	})
}

// A rotation renames the file and asks once: if that were lost, nothing would be rotated any more.
func TestAFileThatTakesNothingForAWhileIsOpenedAgainAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := &disk{room: 1 << 20, gate: make(chan struct{})}, &disk{room: 1 << 20}
		l, _ := newLog(t, filepath.Join(t.TempDir(), "requests.log"))
		files := []io.WriteCloser{old, next}
		l.open = func(string) (f io.WriteCloser, err error) { f, files = files[0], files[1:]; return f, nil }
		start(t, l)
		l.Add(&Record{ID: "before"}, true)
		time.Sleep(flushDelay)
		synctest.Wait() // the writer waits for the disk
		for range 2 {
			if err := l.Reopen(); !errors.Is(err, ErrBusy) {
				t.Errorf("%v", err)
			}
		}
		close(old.gate)
		synctest.Wait()
		l.Add(&Record{ID: "after"}, true)
		time.Sleep(flushDelay)
		synctest.Wait()
		if got := fmt.Sprint(idsIn(t, old.taken()), idsIn(t, next.taken())); got != "[before] [after]" {
			t.Errorf("the files have %s", got)
		}
		if n := testutil.ToFloat64(l.reopens[true]); n != 1 || testutil.ToFloat64(l.reopens[false]) != 0 {
			t.Errorf("%v times opened again", n)
		}
	})
}

func TestARecordIsWrittenSoonAfterItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: 1 << 20}
		l, err := New(Config{File: Stdout, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		l.open = func(string) (io.WriteCloser, error) { return d, nil }
		start(t, l)
		lines := func() int { return bytes.Count(d.taken(), []byte{'\n'}) }
		for n := range 3 {
			l.Add(&Record{ID: "x"}, true)
			synctest.Wait()
			if lines() != n {
				t.Errorf("%d lines are written before the delay", lines()-n)
			}
			time.Sleep(flushDelay)
			synctest.Wait()
			if lines() != n+1 {
				t.Errorf("%d lines after the delay, want %d", lines(), n+1)
			}
		}
		for range flushBytes/(len(d.taken())/3) + 1 { // a full buffer is not delayed
			l.Add(&Record{ID: "x"}, true)
		}
		synctest.Wait()
		if len(d.taken()) < flushBytes {
			t.Errorf("%d bytes are written", len(d.taken()))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkAdd is a record from its facts to the queue, and its write.
func BenchmarkAdd(b *testing.B) {
	l, err := New(Config{File: os.DevNull, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Start(); err != nil {
		b.Fatal(err)
	}
	r := full()
	b.ReportAllocs()
	for b.Loop() {
		l.Add(&r, true)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkTakes(b *testing.B) {
	s := NewSampler(0.01)
	for b.Loop() {
		s.Takes("5f1c2a9be03d7714-00000000003f")
	}
}
