package requestlog

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// full has a value in every field.
func full() Record {
	return Record{
		Time: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC), ID: "id-1", Sampled: true, Trace: "0af7651916cd43dd8448eb211c80319c",
		Relay: "r1", From: "r2", Service: "billing", Caller: "web", Client: "192.0.2.1",
		Method: "POST", Path: "/a%20b", Query: "q=1", Protocol: "2", Status: 503, CallStatus: "UNAVAILABLE", Outcome: "failed", Code: "overloaded",
		BytesIn: 3, BytesOut: 4, Wait: time.Millisecond, Connect: 2 * time.Millisecond, FirstByte: 3500 * time.Microsecond, Total: time.Second + 1234*time.Nanosecond,
		Tunnel: true, Plan: 0xabc,
		Attempts: []Attempt{
			{Endpoint: "w1", Address: "10.0.0.1:80", Chosen: "p2c", Failure: "dial", Error: "refused", Began: time.Microsecond, Wait: time.Millisecond, Connect: 2 * time.Millisecond, Took: 3 * time.Millisecond},
			{Endpoint: "w2", Address: "10.0.0.2:80", Chosen: "p2c", Status: 503, Code: "no_endpoint", Reused: true},
		},
	}
}

func TestALineHasEveryFieldUnderItsName(t *testing.T) {
	r := full()
	line := Append(nil, &r)
	var got map[string]any
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	want := map[string]any{
		"timestamp": "2026-03-01T12:00:00.123456Z", "ringway.request.id": "id-1", "trace_id": "0af7651916cd43dd8448eb211c80319c",
		"ringway.relay": "r1", "ringway.forwarded_by": "r2", "ringway.service": "billing", "ringway.caller": "web", "client.address": "192.0.2.1",
		"http.request.method": "POST", "url.path": "/a%20b", "url.query": "q=1", "network.protocol.name": "http", "network.protocol.version": "2",
		"http.response.status_code": 503.0, "rpc.response.status_code": "UNAVAILABLE", "ringway.outcome": "failed", "error.type": "overloaded",
		"http.request.body.size": 3.0, "http.response.body.size": 4.0, "ringway.wait_ms": 1.0, "ringway.connect_ms": 2.0,
		"ringway.first_byte_ms": 3.5, "ringway.duration_ms": 1000.001, "ringway.tunnel": true, "ringway.plan.version": "0000000000000abc", "ringway.sampled": true,
		"ringway.attempts": []any{
			map[string]any{"endpoint": "w1", "address": "10.0.0.1:80", "chosen_by": "p2c", "failure": "dial", "error": "refused", "start_ms": 0.001, "wait_ms": 1.0, "connect_ms": 2.0, "duration_ms": 3.0, "reused": false},
			map[string]any{"endpoint": "w2", "address": "10.0.0.2:80", "chosen_by": "p2c", "status": 503.0, "code": "no_endpoint", "start_ms": 0.0, "duration_ms": 0.0, "reused": true},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v, want\n%v", got, want)
	}
}

func TestHostileTextStaysInItsFieldAndIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"a line":            "x\n{\"ringway.relay\":\"forged\"}\n",
		"the end of a text": `x","ringway.relay":"forged`,
		"a backslash":       `x\`,
		"a terminal":        "\x1b]0;title\x07\x1b[2J\u009b2J",
		"direction":         "\u202egnp.exe",
		"line separators":   "a\u2028b\u2029c\u0085d",
		"zero":              "\x00\x7f",
		"no UTF-8":          "\xff\xfe\xc3\x28\xed\xa0\x80",
		"long":              strings.Repeat("\x01", 1<<20),
		"half a character":  strings.Repeat("x", maxName-1) + "ü" + strings.Repeat("x", maxPath),
	} {
		t.Run(name, func(t *testing.T) {
			r := Record{ID: text, Service: text, Caller: text, Client: text, Method: text, Path: text, Query: text, From: text, Code: text, Attempts: []Attempt{{Endpoint: text, Error: text, Code: text}}}
			checkLine(t, &r)
		})
	}
}

// checkLine compares the line of a record with what encoding/json reads.
func checkLine(t *testing.T, r *Record) {
	t.Helper()
	line := Append([]byte("before"), r)
	line = line[len("before"):]
	if len(line) > 64<<10 {
		t.Errorf("the line has %d bytes", len(line))
	}
	if bytes.IndexByte(line, '\n') != len(line)-1 || !utf8.Valid(line) {
		t.Fatalf("not one line of UTF-8: %.400q", line)
	}
	for _, c := range string(line[:len(line)-1]) {
		if !unicode.IsPrint(c) {
			t.Fatalf("%U is in the line: %.400q", c, line)
		}
	}
	var got struct {
		ID       string `json:"ringway.request.id"`
		Service  string `json:"ringway.service"`
		Method   string `json:"http.request.method"`
		Path     string `json:"url.path"`
		Relay    string `json:"ringway.relay"`
		Status   int    `json:"http.response.status_code"`
		In       int64  `json:"http.request.body.size"`
		Attempts []struct{ Endpoint, Error string }
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	if err := decoder.Decode(&got); err != nil || decoder.More() {
		t.Fatalf("%v in %.400q", err, line)
	}
	for _, c := range []struct {
		name, got, of string
		limit         int
	}{
		{"ID", got.ID, r.ID, maxName}, {"service", got.Service, r.Service, maxName}, {"method", got.Method, r.Method, maxName}, {"path", got.Path, r.Path, maxPath}, {"relay", got.Relay, r.Relay, maxName},
	} {
		want := string([]rune(c.of)) // one U+FFFD for each byte that is not UTF-8
		if len(c.of) <= c.limit {
			if c.got != want {
				t.Errorf("%s: %.200q, want %.200q", c.name, c.got, want)
			}
			continue
		}
		head, cut := strings.CutSuffix(c.got, ellipsis)
		if !cut || !strings.HasPrefix(want, head) || len([]rune(head)) < (c.limit-utf8.UTFMax)/utf8.UTFMax {
			t.Errorf("%s is cut to %.200q, of %.200q", c.name, c.got, c.of)
		}
	}
	if got.Status != r.Status || got.In != r.BytesIn {
		t.Errorf("%+v of %+v", got, r)
	}
}

func FuzzALineIsWhatEncodingJSONReads(f *testing.F) {
	f.Add("id", "/path?\"\\", "GET", "svc\n", 200, int64(7))
	f.Add("\xff\xed\xa0\x80", "\u2028\x00\x1b[", strings.Repeat("ü", 80), "\U0001f600", -1, int64(-1))
	f.Fuzz(func(t *testing.T, id, path, method, service string, status int, in int64) {
		checkLine(t, &Record{ID: id, Path: path, Method: method, Service: service, Relay: id + path, Status: status, BytesIn: in, Attempts: []Attempt{{Endpoint: path, Error: id}, {Endpoint: id}}})
	})
}

func BenchmarkAppend(b *testing.B) {
	r := full()
	var line []byte
	b.ReportAllocs()
	for b.Loop() {
		line = Append(line[:0], &r)
	}
}
