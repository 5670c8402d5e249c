package demo

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/screen"
)

func fixedFrame() frame {
	return frame{
		Elapsed: 12 * time.Second, PerSecond: 301.5, Requests: 3618, Errors: 0, Retries: 7,
		P50: 6300 * time.Microsecond, P99: 12900 * time.Microsecond,
		Relays: []relayRow{{relayAddress{"relay-1", "http://127.0.0.1:1001", "http://127.0.0.1:1002"}, 2, false}},
		Rows: []row{
			{"worker-01", 3, 43.9, 5.77, 1, "active"},
			{"worker-02", 2, 0, 19.189, 0, "evicted 1/2"},
			{"worker-03", 0, 0, 0, 0, "absent"},
		},
		Events: []string{"10:00:01 killed worker-03"},
	}
}

func TestTheTableShowsEveryWorkerAndWhereToLook(t *testing.T) {
	const want = `12s   301.5 req/s  0 errors  7 retries  p50 6.3 ms  p99 12.9 ms

relay-1  2 of 3 workers  http://127.0.0.1:1001  admin http://127.0.0.1:1002
try      curl -H 'Ringway-Service: demo' http://127.0.0.1:1001/
         curl http://127.0.0.1:1002/api/v1/services/demo/plan

WORKER       RELAYS     REQ/S   EWMA MS IN FLIGHT  STATE
worker-01         3      43.9      5.77         1  active
worker-02         2       0.0     19.19         0  evicted 1/2
worker-03         0       0.0      0.00         0  absent

10:00:01 killed worker-03`
	if got := strings.Join(fixedFrame().table(0), "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestARelayThatDidNotAnswerIsNamed(t *testing.T) {
	f := fixedFrame()
	f.Relays[0].Silent = true
	var line strings.Builder
	if err := (lineDisplay{&line}).show(f); err != nil || !strings.HasSuffix(line.String(), "  relay-1 did not answer\n") {
		t.Errorf("the line is %q, %v", line.String(), err)
	}
	const want = "relay-1  did not answer  http://127.0.0.1:1001  admin http://127.0.0.1:1002"
	if lines := f.table(24); !slices.Contains(lines, want) {
		t.Errorf("there is no line %q in\n%s", want, strings.Join(lines, "\n"))
	}
}

func TestATableNeverOutgrowsItsTerminal(t *testing.T) {
	for _, size := range []struct{ width, height int }{{80, 24}, {80, 13}, {80, 12}, {20, 11}, {80, 4}, {1, 24}} {
		t.Run(fmt.Sprintf("%dx%d", size.width, size.height), func(t *testing.T) {
			var out strings.Builder
			d := &tableDisplay{Screen: screen.Screen{Out: &out, Top: true, Size: func() (int, int) { return size.width, size.height }}}
			if err := d.show(fixedFrame()); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(strings.TrimPrefix(out.String(), "\x1b[H"), "\x1b[K\r\n\x1b[J"), "\x1b[K\r\n")
			if len(lines) >= size.height {
				t.Errorf("%d lines and the cursor do not fit %d", len(lines), size.height)
			}
			for _, l := range lines {
				if n := len([]rune(l)); n > size.width {
					t.Errorf("%d characters do not fit %d: %q", n, size.width, l)
				}
			}
		})
	}
}

func TestOfRowsThatDoNotFitThoseOfKilledWorkersStayFirst(t *testing.T) {
	f := fixedFrame()
	text := strings.Join(f.table(12), "\n")
	if !strings.Contains(text, "worker-02") || strings.Contains(text, "worker-01") || !strings.Contains(text, "… and 2 more") {
		t.Errorf("the worker that is evicted is hidden:\n%s", text)
	}
	// The default size of the demo on a terminal of the default size.
	f.Relays, f.Rows = nil, nil
	for i := range 6 {
		f.Relays = append(f.Relays, relayRow{relayAddress{fmt.Sprint("relay-", i+1), "http://127.0.0.1:10001", "http://127.0.0.1:10002"}, 12, false})
	}
	for i := range 24 {
		f.Rows = append(f.Rows, row{Worker: workerID(i), Relays: 3, State: stateActive})
	}
	f.Rows[20].State, f.Rows[22].State = "absent", killedState(stateActive, time.Now())
	lines := f.table(24)
	var workers []string
	for _, l := range lines {
		if strings.HasPrefix(l, "worker-") || strings.HasPrefix(l, "…") {
			workers = append(workers, strings.Fields(l)[0])
		}
	}
	if got := strings.Join(workers, " "); got != "worker-23 worker-21 worker-01 worker-02 worker-03 worker-04 worker-05 worker-06 …" {
		t.Errorf("the rows are %s", got)
	}
	if want := "relay-6  12 of 24 workers  http://127.0.0.1:10001  admin http://127.0.0.1:10002"; !slices.Contains(lines, want) {
		t.Errorf("there is no line %q in\n%s", want, strings.Join(lines, "\n"))
	}
}

func TestAFrameIsDrawnOverTheOneBefore(t *testing.T) {
	var out bytes.Buffer
	s := &tableDisplay{Screen: screen.Screen{Out: &out, Size: func() (int, int) { return 80, 24 }}}
	if err := s.show(fixedFrame()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "A12s") {
		t.Error("the first frame moves the cursor up, over what is not its own")
	}
	lines := strings.Count(out.String(), "\n")
	out.Reset()
	if err := s.show(fixedFrame()); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\r\x1b[%dA", lines); !strings.HasPrefix(out.String(), want) {
		t.Errorf("the second frame begins with %q, want %q", out.String()[:8], want)
	}
}

// The last replacement comes when the frames have ended.
func TestAnEventIsDrawnWithoutAnotherFrame(t *testing.T) {
	var out bytes.Buffer
	s := &tableDisplay{Screen: screen.Screen{Out: &out, Size: func() (int, int) { return 80, 24 }}}
	if err := s.show(fixedFrame()); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := s.event("12:00:00 replaced worker-0"); err != nil || !strings.Contains(out.String(), "replaced worker-0") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestOnlyTheNewestEventsStayInSight(t *testing.T) {
	s := &tableDisplay{}
	for i := range 3 * shownEvents {
		_ = s.event(fmt.Sprint(i))
	}
	if len(s.events) != shownEvents || s.events[shownEvents-1] != fmt.Sprint(3*shownEvents-1) {
		t.Errorf("events %q", s.events)
	}
}

func TestAWorkersRowIsTheViewOfAllItsRelays(t *testing.T) {
	peer := func(ewma float64, inFlight int, state string) api.Peer {
		return api.Peer{Node: "worker-01", Connected: true, EWMAms: ewma, InFlight: inFlight, State: state}
	}
	views := []relayView{
		view("relay-1", "affine", 0, peer(4, 1, "active")),
		view("relay-2", "affine", 0, peer(8, 2, "evicted")),
		view("relay-3", "forwarding", 0, api.Peer{Node: "relay-1", Connected: true}),
	}
	w := window{Seconds: 2, Worker: map[string]uint64{"worker-01": 30}}
	got := newRows([]string{"worker-01", "worker-02"}, w, views)
	want := []row{{"worker-01", 2, 15, 6, 3, "evicted 1/2"}, {"worker-02", 0, 0, 0, 0, "absent"}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("row %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestAKilledWorkerKeepsItsStateNextToTheKill(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 1, 0, time.Local)
	for now, want := range map[string]string{stateActive: "killed 10:00:01, active again", "absent": "killed 10:00:01", "evicted 1/2": "killed 10:00:01"} {
		if got := killedState(now, at); got != want {
			t.Errorf("%s: %q, want %q", now, got, want)
		}
	}
}

func TestTheNewestLogRecordsAreKept(t *testing.T) {
	var r logRing
	for i := range keptRecords + 5 {
		_, _ = fmt.Fprintf(&r, "record %d\n", i)
	}
	var out bytes.Buffer
	if err := r.dump(&out); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if !strings.Contains(got[0], "5 earlier") || got[1] != "record 5" || len(got) != keptRecords+1 {
		t.Errorf("dump:\n%s", out.String())
	}
}
