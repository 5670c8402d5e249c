package relay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/settings"
)

func TestABlockedCallerIsRefusedUntilTheBlockEnds(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	r := f.relay(func(s *Settings) {
		s.TrustedProxies.Set("127.0.0.0/8")
		s.Requests.ExposeRouteHeaders = true
		s.Requests.Blocks = []ingress.Block{
			{Caller: "mallory", Service: "*", Reason: "scraper", Until: time.Now().Add(time.Hour)},
			{Caller: "batch", Service: "billing"},
			{Caller: "*", Service: "reports"},
			{Caller: "alice", Service: "*", Until: time.Now().Add(-time.Second)},
		}
	})
	backend := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend), service("billing", backend), service("reports", backend))
	for _, name := range []string{"echo", "billing", "reports"} {
		r.settled(t, name, 1)
	}
	ask := func(caller, service string) (int, string) {
		resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: "+service, "Ringway-Caller: "+caller)
		return resp.StatusCode, body
	}
	for _, c := range []struct {
		caller, service string
		blocked         bool
	}{
		{"mallory", "echo", true}, {"mallory", "billing", true}, {"Mallory", "echo", false},
		{"batch", "billing", true}, {"batch", "echo", false}, {"batch", "reports", true},
		{"alice", "echo", false}, {"alice", "reports", true},
	} {
		status, body := ask(c.caller, c.service)
		if (status == http.StatusForbidden) != c.blocked || c.blocked != strings.Contains(body, `"code":"blocked"`) || !c.blocked && status != http.StatusOK {
			t.Errorf("%s to %s: %d %s", c.caller, c.service, status, body)
		}
		if c.caller == "mallory" && !strings.Contains(body, "scraper") {
			t.Errorf("the reason is missing: %s", body)
		}
	}
	if got := logtest.Series(t, r.cfg.Registry, "ringway_relay_rejections_total")["blocked,reports"]; got != 2 {
		t.Errorf("%v requests are counted for reports, want 2", got)
	}
	requests := *r.tuned.Load()
	requests.Blocks = nil
	r.tune(requests) // as a reload does
	if status, body := ask("mallory", "reports"); status != http.StatusOK {
		t.Errorf("after the reload: %d %s", status, body)
	}
}

func TestABlockThatMakesNoSenseIsRefused(t *testing.T) {
	fine := ingress.Block{Caller: "a", Service: "echo"}
	for want, b := range map[string]ingress.Block{
		"block 2: needs a caller and a service":              {Caller: "a"},
		"block 2: needs a caller":                            {Service: "echo"},
		"block 2: would block all requests":                  {Caller: "*", Service: "*"},
		"block 2: has the caller and the service of block 1": fine,
		`caller " a" is none`:                                {Caller: " a", Service: "*"},
		`caller "a\nb" is none`:                              {Caller: "a\nb", Service: "*"},
		"at most 256 bytes":                                  {Caller: strings.Repeat("a", 257), Service: "*"},
		"is a network":                                       {Caller: "10.0.0.0/8", Service: "*"},
		"service":                                            {Caller: "a", Service: "bad name"},
		"want one line of at most 256 bytes":                 {Caller: "a", Service: "*", Reason: "x\ny"},
	} {
		err := ingress.CheckBlocks([]ingress.Block{fine, b})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want %q", b, err, want)
		}
	}
	if err := ingress.CheckBlocks(make([]ingress.Block, 10_001)); err == nil || !strings.Contains(err.Error(), "at most 10000") {
		t.Error(err)
	}
	s := DefaultSettings()
	set := settings.New("relay", "RINGWAY")
	s.Declare(set)
	path := filepath.Join(t.TempDir(), "relay.yaml")
	for content, want := range map[string]string{
		"blocks: [{caller: a, service: '*', until: tomorrow}]": "until",
		"blocks: [{caller: a, services: '*'}]":                 "services",
		"blocks: [{caller: '*', service: '*'}]":                "would block all requests",
	} {
		if err := os.WriteFile(path, []byte("cluster: test\nenvironment: ci\n"+content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := set.Load(settings.Sources{File: path}); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "tomorrow") {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

func TestTheHeadOfAnAnswerMayBeAsLongAsTheSettingSays(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	short := f.relay(func(*Settings) {})
	long := f.relay(func(s *Settings) { s.Upstream.MaxResponseHeaderBytes = 300 << 10 })
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20 {
			w.Header().Set(fmt.Sprintf("X-Long-%d", i), strings.Repeat("a", 10<<10))
		}
	}))
	t.Cleanup(backend.Close)
	f.worker("w1", service("echo", backend))
	for r, want := range map[*runningRelay]int{short: http.StatusBadGateway, long: http.StatusOK} {
		r.settled(t, "echo", 1)
		if resp, body := r.call(t, "GET", "/", nil, "Ringway-Service: echo"); resp.StatusCode != want || want == 200 && len(resp.Header.Get("X-Long-19")) != 10<<10 {
			t.Errorf("%s %s, want %d", resp.Status, body, want)
		}
	}
}

func TestAnOperatorBlocksACallerAndAReloadLosesNothing(t *testing.T) {
	t.Parallel()
	r := newReloadable(t)
	query := ""
	ask := func(method, body string) (int, api.Blocks, string) {
		t.Helper()
		w := httptest.NewRecorder()
		r.admin.server.(*http.Server).Handler.ServeHTTP(w, httptest.NewRequest(method, "http://localhost/api/v1/blocks"+query, strings.NewReader(body)))
		var answer api.Blocks
		_ = json.Unmarshal(w.Body.Bytes(), &answer)
		return w.Code, answer, w.Body.String()
	}
	r.write("blocks: [{caller: '*', service: reports}]")
	if _, err := r.reload(); err != nil {
		t.Fatal(err)
	}
	status, answer, body := ask("POST", `{"operation":"add","caller":"mallory","service":"*","for_ms":60000,"reason":"scraper"}`)
	if status != http.StatusOK || len(answer.Blocks) != 1 || answer.Blocks[0].Reason != "scraper" || time.Until(answer.Blocks[0].Until) > time.Minute || answer.Relay != "r1" {
		t.Errorf("%d %s", status, body)
	}
	r.write("blocks: [{caller: batch, service: billing}]")
	if _, err := r.reload(); err != nil {
		t.Fatal(err)
	}
	if _, answer, body := ask("GET", ""); len(answer.Blocks) != 2 || answer.Blocks[0].Caller != "mallory" || answer.Blocks[1].Caller != "batch" || answer.Blocks[1].Origin != "file" {
		t.Errorf("after a reload: %s", body)
	}
	query = "?relay=r2" // which is another relay
	for method, body := range map[string]string{"POST": `{"operation":"add","caller":"eve","service":"*","for_ms":60000}`, "GET": ""} {
		if status, _, body := ask(method, body); status != http.StatusConflict || !strings.Contains(body, `this relay is r1 and not \"r2\"`) {
			t.Errorf("%s: %d %s", method, status, body)
		}
	}
	query = "?relay=r1"
	if status, answer, body := ask("GET", ""); status != http.StatusOK || len(answer.Blocks) != 2 {
		t.Errorf("%d %s", status, body)
	}
	query = ""
	if status, _, body := ask("POST", `{"operation":"remove","caller":"mallory","service":"*"}`); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if said := r.log.String(); !strings.Contains(said, "operation=add caller=mallory") || !strings.Contains(said, "operation=remove caller=mallory") {
		t.Errorf("the log has not who was blocked: %s", said)
	}
	for body, want := range map[string]string{
		"": "the body is not", "[]": "the body is not", `{"operation":"add","callers":"a"}`: "callers",
		`{"operation":"add","caller":"` + strings.Repeat("a", 5000):                   "the body is not",
		`{"operation":"block","caller":"a","service":"*"}`:                            "allowed are add, remove",
		`{"operation":"add","caller":"a","service":"*"}`:                              "for_ms 0: want 1000 to 2592000000",
		`{"operation":"add","caller":"a","service":"*","for_ms":-1}`:                  "for_ms -1",
		`{"operation":"add","caller":"a","service":"*","for_ms":9223372036854775807}`: "a block that stays belongs in blocks of the file",
		`{"operation":"add","caller":"*","service":"*","for_ms":1000}`:                "would block all requests",
		`{"operation":"add","service":"*","for_ms":1000}`:                             "needs a caller and a service",
		`{"operation":"add","caller":"10.0.0.0/8","service":"*","for_ms":1000}`:       "is a network",
		`{"operation":"add","caller":"a","service":"b d","for_ms":1000}`:              "b d",
		`{"operation":"add","caller":"a\u001b[2J","service":"*","for_ms":1000}`:       "is none",
	} {
		if status, _, answer := ask("POST", body); status != http.StatusBadRequest || !strings.Contains(answer, want) {
			t.Errorf("%.60s: %d %s, want %q", body, status, answer, want)
		}
	}
	if status, _, body := ask("POST", `{"operation":"remove","caller":"batch","service":"billing"}`); status != http.StatusNotFound || !strings.Contains(body, "take it out there, and reload") {
		t.Errorf("%d %s", status, body)
	}
}
