package docs_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/requestlog"
)

func TestTheRequestLogPageHasEveryFieldAndItsLineNoOther(t *testing.T) {
	page, err := os.ReadFile("how-to/request-log.md")
	if err != nil {
		t.Fatal(err)
	}
	full := requestlog.Record{
		Time: time.Now(), ID: "x", Trace: "x", Relay: "x", From: "x", Service: "x", Caller: "x", Client: "x", Method: "x", Path: "x", Query: "x", Protocol: "x",
		Status: 1, CallStatus: "x", Outcome: "x", Code: "x", FirstByte: 1, Tunnel: true, Plan: 1,
		Attempts: []requestlog.Attempt{{Endpoint: "x", Address: "x", Chosen: "x", Status: 1, Failure: "x", Error: "x", Code: "x", Wait: 1, Connect: 1}},
	}
	fields := func(line []byte) map[string]bool {
		var object map[string]any
		if err := json.Unmarshal(line, &object); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		names := map[string]bool{}
		for name := range object {
			names[name] = true
		}
		for _, attempt := range object["ringway.attempts"].([]any) {
			for name := range attempt.(map[string]any) {
				names["attempt "+name] = true
			}
		}
		return names
	}
	all := fields(requestlog.Append(nil, &full))
	for name := range all {
		if !strings.Contains(string(page), "`"+strings.TrimPrefix(name, "attempt ")+"`") {
			t.Errorf("request-log.md does not explain %s", name)
		}
	}
	_, line, found := strings.Cut(string(page), "```json\n")
	if !found {
		t.Fatal("request-log.md has no line")
	}
	line, _, _ = strings.Cut(line, "\n")
	for name := range fields([]byte(line)) {
		if !all[name] {
			t.Errorf("the line of request-log.md has %s, which no record has", name)
		}
	}
}
