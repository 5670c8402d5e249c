package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/command"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
)

// liveFleet is relays with certificates and a worker that answers /fails with 500.
func liveFleet(t *testing.T, relays int) *fleet.Fleet {
	t.Helper()
	f := fleet.New(fleet.Config{Cluster: "live", Environment: "ci"})
	t.Cleanup(func() { _ = f.Stop() }) // an error is that of a relay that a test has broken
	for i := range relays {
		if err := f.StartRelay(fmt.Sprintf("r%d", i+1), nil); err != nil {
			t.Fatal(err)
		}
	}
	service := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Handler: service, Services: []string{"echo"}}); err != nil {
		t.Fatal(err)
	}
	for _, r := range f.Relays() {
		procs.Await(t, r.ID()+" is ready and sees all", func() bool {
			members, err := get("http://" + r.AdminAddr() + "/api/v1/members")
			explained, explainErr := get("http://" + r.AdminAddr() + "/api/v1/services/echo/explain?worker=w1")
			_, readyErr := get("http://" + r.AdminAddr() + "/readyz")
			return errors.Join(err, explainErr, readyErr) == nil && strings.Count(members, `"role"`) == relays+1 && strings.Contains(explained, `"link": "open"`)
		})
	}
	return f
}

func request(t *testing.T, r *fleet.Relay, path string, times int) {
	t.Helper()
	for range times {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.IngressAddr()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Ringway-Service", "echo")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

func runWith(t *testing.T, c *cobra.Command, args ...string) (out string, err error) {
	t.Helper()
	var stdout bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(io.Discard)
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(t.Context())
	return stdout.String(), err
}

func TestMembersAndServicesOfAllShowTheWholeFleetAndWhoDoesNotAnswer(t *testing.T) {
	f := liveFleet(t, 3)
	request(t, f.Relay("r1"), "/", 2)
	request(t, f.Relay("r2"), "/", 3)
	request(t, f.Relay("r2"), "/fails", 1)
	admin := []string{"--admin-addr", f.Relay("r1").AdminAddr(), "--all", "--window", "50ms"}

	out, err := runWith(t, command.MembersCommand("relay"), append(admin, "-o", "json")...)
	var doc api.Fleet
	if err != nil || json.Unmarshal([]byte(out), &doc) != nil || len(doc.Relays) != 3 {
		t.Fatalf("%v: %s", err, out)
	}
	for i, want := range []api.Counts{{Requests: 2}, {Requests: 4, Errors: 1}, {}} {
		if got := doc.Relays[i]; got.ID != fmt.Sprintf("r%d", i+1) || !got.Answered || !got.Ready || !got.Measured || got.Counts != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if out, err = runWith(t, command.MembersCommand("relay"), append(admin, "-o", "wide")...); err != nil || !strings.Contains(out, "rates over 50ms, asked by r1\n") || strings.Count(out, " alive  yes ") != 3 {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = runWith(t, command.ServicesCommand(), append(admin, "-o", "wide")...); err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "echo 0.0 0.0% 0 0 1 3 - 6 1") {
		t.Errorf("%v\n%s", err, out)
	}

	_ = f.Relay("r3").Close() // as if its process had been killed
	out, err = runWith(t, command.MembersCommand("relay"), admin...)
	if err != nil || !strings.Contains(out, "no answer") || !strings.Contains(out, "\nr3: ") || !strings.Contains(out, "refused") || strings.Count(out, " alive  yes ") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err = runWith(t, command.ServicesCommand(), admin...); err != nil || !strings.Contains(out, "without r3: ") {
		t.Errorf("%v\n%s", err, out)
	}
	for flags, want := range map[string]string{
		"--all --role worker": "leave out --role", "--window 1s": "belongs to --all", "--all --window 1h": "allowed are 50ms to 10s",
	} {
		if _, err := runWith(t, command.MembersCommand("relay"), append([]string{"--admin-addr", f.Relay("r1").AdminAddr()}, strings.Fields(flags)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", flags, err)
		}
	}
	if _, err := runWith(t, command.ServicesCommand(), append(admin, "echo")...); err == nil || !strings.Contains(err.Error(), "leave out the name") {
		t.Error(err)
	}
}

// front is a proxy in front of an admin API. before is called before each request for the
// counters is passed on, with its number, and opened when a stream has begun.
func front(t *testing.T, admin string, before func(request int), opened func()) (addr string) {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { // without X-Forwarded-For, which the API refuses
		r.SetURL(&url.URL{Scheme: "http", Host: admin})
	}}
	proxy.ModifyResponse = func(resp *http.Response) error {
		if strings.HasSuffix(resp.Request.URL.Path, "/tap") {
			opened()
		}
		return nil
	}
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/traffic" {
			before(int(requests.Add(1)))
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestTopOnceShowsTheTrafficOfItsWindow(t *testing.T) {
	f := liveFleet(t, 1)
	r := f.Relay("r1")
	request(t, r, "/", 5) // before the window
	for by, want := range map[string]api.TopRow{
		"service": {Name: "echo", Requests: 9, Errors: 3}, "worker": {Name: "w1", Requests: 9, Errors: 3, State: "active"},
	} {
		t.Run(by, func(t *testing.T) {
			addr := front(t, r.AdminAddr(), func(n int) {
				if n == 2 { // at the end of the window
					request(t, r, "/", 6)
					request(t, r, "/fails", 3)
				}
			}, nil)
			out, err := runWith(t, command.TopCommand(), "--once", "--by", by, "--interval", "50ms", "-o", "json", "--admin-addr", addr)
			var doc command.TopDocument
			if err != nil || json.Unmarshal([]byte(out), &doc) != nil || len(doc.Rows) != 1 || doc.Relay != "r1" || doc.By != by || doc.WindowMs < 50 {
				t.Fatalf("%v: %s", err, out)
			}
			got := doc.Rows[0]
			if got.Name != want.Name || got.Requests != want.Requests || got.Errors != want.Errors || got.State != want.State || got.InFlight == nil || *got.InFlight != 0 {
				t.Errorf("%+v, want %+v", got, want)
			}
			if rate := got.RequestsPerSecond * float64(doc.WindowMs) / 1000; math.Abs(rate-9) > 1 {
				t.Errorf("%v requests in %d ms are %v per second", got.Requests, doc.WindowMs, got.RequestsPerSecond)
			}
			if by == "service" && (got.P50Ms <= 0 || got.P99Ms < got.P50Ms) || by == "worker" && got.EWMAMs <= 0 {
				t.Errorf("%+v", got)
			}
		})
	}
	out, err := runWith(t, command.TopCommand(), "echo", "--once", "--interval", "50ms", "--admin-addr", r.AdminAddr())
	if lines := strings.Split(out, "\n"); err != nil || len(lines) != 4 || !strings.HasPrefix(lines[0], "SERVICE  REQ/S") || !strings.HasPrefix(lines[1], "echo ") || !strings.HasPrefix(lines[2], "r1 over ") {
		t.Errorf("%v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"--by relay": `--by "relay": allowed are`, "--sort size": `--sort "size": allowed are`, "--interval 1ms": "allowed are 50ms", "absent --interval 50ms": `knows no service "absent"`,
		"absent --by caller": "no worker offers",
	} {
		if _, err := runWith(t, command.TopCommand(), append(strings.Fields(args), "--once", "--admin-addr", r.AdminAddr())...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// The stream is open before the first request, and the documents add up to all requests.
func TestTopByCallerCountsEveryRequestOfItsWindows(t *testing.T) {
	f := liveFleet(t, 1)
	r := f.Relay("r1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opened := make(chan struct{})
	addr := front(t, r.AdminAddr(), nil, func() { close(opened) })
	read, write := io.Pipe()
	c := command.TopCommand()
	c.SetOut(write)
	c.SetErr(io.Discard)
	c.SilenceUsage = true
	c.SetArgs([]string{"--by", "caller", "--interval", "50ms", "-o", "json", "--admin-addr", addr})
	done := make(chan error, 1)
	go func() {
		err := c.ExecuteContext(ctx)
		_ = write.Close()
		done <- err
	}()
	<-opened
	request(t, r, "/", 4)
	request(t, r, "/fails", 2)
	var requests, failures uint64
	for documents := json.NewDecoder(read); requests < 6; {
		var doc command.TopDocument
		if err := documents.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		for _, row := range doc.Rows {
			if row.Name != "127.0.0.1" || row.P99Ms <= 0 || row.InFlight != nil {
				t.Errorf("%+v", row)
			}
			requests, failures = requests+row.Requests, failures+row.Errors
		}
	}
	if requests != 6 || failures != 2 {
		t.Errorf("%d requests, %d failed", requests, failures)
	}
	cancel()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
