//go:build unix

package e2e

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/procs"
)

// TestRelaysTogetherLetPassWhatALimitAllowsUntilAReload asks three relays, of which each lets a third
// of a burst pass, and takes the limit out of their file, for a block, and the block.
func TestRelaysTogetherLetPassWhatALimitAllowsUntilAReload(t *testing.T) {
	t.Parallel()
	const burst = 30
	file := newSettingsFile(t, "rate-limits: [{service: echo, rate: 1/h, burst: 30}]\n")
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 3, Plain: true, RelayArgs: []string{"--config", string(file)},
		Services: func(int) []string { return []string{echo} }})
	procs.Await(t, "three relays serve echo", func() bool {
		for _, r := range f.relays {
			var plan api.Plan
			if _, status := f.ready(r.Admin); status != 200 || f.api(r.Admin, "/api/v1/services/"+echo+"/plan", &plan) != 200 || len(plan.Relays) != 3 {
				return false
			}
		}
		return true
	})
	ask := func(r *relay) answer {
		return f.client.send(request{method: http.MethodGet, addr: r.Ingress, path: "/", service: echo})
	}
	all := 0
	for _, r := range f.relays {
		passed, a := 0, ask(r)
		for ; a.status == http.StatusOK && passed <= burst; a = ask(r) {
			passed++
		}
		if all += passed; passed == 0 || passed > burst/3 {
			t.Errorf("%s let %d requests pass, a third of %d are its share", r.ID, passed, burst)
		}
		for _, args := range [][]string{{"explain", echo}, {"route", "--url", "http://a.test/", "--header", serviceHeader + ": " + echo}} {
			if said := ringway(t, append(args, "--admin-addr", r.Admin)...); !strings.Contains(said.Stdout, "service: 1/h, burst 30; 33.3 % at this relay") {
				t.Errorf("%s of %s: %v", args[0], r.ID, said)
			}
		}
		if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.header.Get("RateLimit-Policy") != `"service";q=1;w=3600` || !strings.Contains(a.body, "rate_limited") {
			t.Errorf("beyond it: %v", a)
		}
	}
	t.Logf("%d of %d requests passed", all, burst)
	file.write(t, "blocks: [{caller: '*', service: echo, reason: repair}]\n")
	for _, r := range f.relays {
		r.Signal(t, syscall.SIGHUP)
		procs.Await(t, "requests are blocked in place of limited", func() bool { return ask(r).status == http.StatusForbidden })
	}
	list := ringway(t, "block", "list", "--all", "--admin-addr", f.relays[0].Admin)
	for _, r := range f.relays {
		if !regexp.MustCompile(r.ID + ` +\* +echo +- +file +1 +repair\n`).MatchString(list.Stdout) {
			t.Errorf("%s is not in the list, or what it refused: %v", r.ID, list)
		}
		for _, args := range [][]string{{"explain", echo}, {"route", echo}} {
			if said := ringway(t, append(args, "--admin-addr", r.Admin)...); !strings.Contains(said.Stdout, "for all callers, by file, repair; 1 refused") || strings.Contains(said.Stdout, "limit") {
				t.Errorf("%s of %s: %v", args[0], r.ID, said)
			}
		}
	}
	file.write(t, "")
	for _, r := range f.relays {
		r.Signal(t, syscall.SIGHUP)
		procs.Await(t, "requests pass without limit and block", func() bool { return ask(r).status == http.StatusOK })
	}
}

// TestCallsOfGRPCAreRefusedByLimitsAndBlocksAtBothRelays has a service that one relay serves and the
// other forwards to it.
func TestCallsOfGRPCAreRefusedByLimitsAndBlocksAtBothRelays(t *testing.T) {
	t.Parallel()
	file := newSettingsFile(t, "rate-limits: [{service: "+rpc+", rate: 1/h, burst: 1}]\n")
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Plain: true, RelayArgs: append(servedBy("r1", 2, rpc), "--config", string(file)),
		Services: func(int) []string { return []string{rpc + ";protocol=h2c"} }})
	serving, others := f.roles(t, rpc, 1)
	call := func(r *relay) (codes.Code, metadata.MD) {
		t.Helper()
		ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), strings.ToLower(serviceHeader), rpc), patience)
		defer cancel()
		conn, err := grpc.NewClient("passthrough:///"+r.Ingress, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		var header, trailer metadata.MD
		_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
		return status.Code(err), metadata.Join(header, trailer)
	}
	if code, _ := call(others[0]); code != codes.OK {
		t.Fatalf("the first call: %v", code)
	}
	for _, r := range []*relay{serving, others[0]} {
		code, said := call(r)
		after := strings.Join(said.Get("retry-after"), "")
		if code != codes.ResourceExhausted || len(after) != 4 || strings.Join(said.Get("ratelimit"), "") != `"service";r=0;t=`+after {
			t.Errorf("%s: %v %v", r.ID, code, said)
		}
	}
	block := func(r *relay, args ...string) string {
		t.Helper()
		done := ringway(t, append([]string{"block"}, append(args, "--admin-addr", r.Admin)...)...)
		if done.Code != 0 {
			t.Errorf("%v", done)
		}
		return done.Stdout
	}
	block(serving, "add", "--caller", "127.0.0.1", "--service", rpc, "--for", "1m", "--all")
	for _, r := range []*relay{serving, others[0]} {
		r.Signal(t, syscall.SIGHUP)
		if code, _ := call(r); code != codes.PermissionDenied {
			t.Errorf("%s: a blocked caller gets %v", r.ID, code)
		}
		if list := block(r, "list", "-o", "json"); !strings.Contains(list, `"refused": 1`) {
			t.Errorf("%s: %s", r.ID, list)
		}
	}
	block(others[0], "remove", "--caller", "127.0.0.1", "--service", rpc, "--all")
	for _, r := range []*relay{serving, others[0]} {
		if code, _ := call(r); code != codes.ResourceExhausted {
			t.Errorf("%s: without the block: %v", r.ID, code)
		}
	}
}
