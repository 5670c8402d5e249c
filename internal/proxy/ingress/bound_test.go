package ingress_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/proxy/ingress"
	"github.com/ringway/ringway/internal/wire"
)

// With forty long requests of one key at eight workers, each has its bound: five are
// its share, and 1.25 times that is seven.
func TestAHotKeyFillsNoWorkerBeyondItsBound(t *testing.T) {
	release := make(chan struct{})
	x := try(t, 8, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush() // the head names where it went
		<-release
	}, func(*ingress.Config) {})
	t.Cleanup(func() { close(release) })
	x.choose("stable")
	counts := map[string]int{}
	for range 40 {
		counts[x.get("/", "hot").Header.Get(wire.EndpointHeader)]++
	}
	for worker, n := range counts {
		if n > 7 {
			t.Errorf("%s has %d of 40 in flight: %v", worker, n, counts)
		}
	}
	if d := x.Explain("hot", x.now()); !strings.Contains(d.Reason, "as many requests in flight as its bound allows, 7: passed on") || !strings.HasPrefix(d.Candidates[0].Note, "passed over: 7 in flight") {
		t.Errorf("%+v", d)
	}
	x.choose("stable;bound=0")
	if d := x.Explain("hot", x.now()); d.Winner != d.Candidates[0].Node {
		t.Errorf("without a bound: %+v", d)
	}
}

func TestEveryKeySourceHoldsAClientsRequestsTogether(t *testing.T) {
	for text, request := range map[string]func(key string) (path, header string){
		"header:X-User": func(key string) (string, string) { return "/", "X-User: " + key },
		"cookie:sid":    func(key string) (string, string) { return "/", "Cookie: other=1; sid=" + key },
		"query:user":    func(key string) (string, string) { return "/?user=" + key, "" },
	} {
		keys, err := ingress.ParseKeySources(text)
		if err != nil {
			t.Fatal(err)
		}
		x := try(t, 5, func(_ int64, _ http.ResponseWriter, r *http.Request) {
			for name := range r.Header {
				if wire.Reserved(name) {
					t.Errorf("%s: the worker sees %s", text, name)
				}
			}
		}, func(cfg *ingress.Config) { cfg.Keys = ingress.Keys{"echo": keys} })
		x.choose("stable")
		workers := map[string]bool{}
		for i := range 12 {
			path, header := request(fmt.Sprint("key", i))
			home := ""
			for range 3 {
				resp := x.ask(path, header)
				worker := resp.Header.Get(wire.EndpointHeader)
				if home != "" && worker != home {
					t.Errorf("%s: key%d goes to %s and %s", text, i, home, worker)
				}
				home = worker
			}
			workers[home] = true
		}
		if len(workers) < 3 {
			t.Errorf("%s: 12 keys go to %v", text, workers)
		}
	}
}

// ask sends a request with one header, which may be empty, and a key that the relay is
// configured not to read.
func (f *front) ask(path, header string) *http.Response {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, "http://"+f.addr+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set(wire.ServiceHeader, "echo")
	req.Header.Set(wire.KeyHeader, fmt.Sprintf("%p", req))
	if name, value, ok := strings.Cut(header, ": "); ok {
		req.Header.Set(name, value)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}
