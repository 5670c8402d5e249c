package main

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// symptom is a fault in an installed fleet and the way of an operator who sees it.
type symptom struct {
	fault  string // a script that injects it
	seen   string // succeeds when an operator sees the symptom of row
	row    string // of docs/operations/start-here.md
	page   string // that the row leads to
	about  string // the service that replaces SERVICE in its first command; empty: billing
	shows  string // the output of that command
	remedy string // the action that the page names
	over   string // succeeds when the page states that it is over
}

const request = "curl --silent --show-error --header 'Ringway-Service: billing' http://127.0.0.1:7410/"

// The commands of the pages run word for word, but SERVICE and WORKER are replaced.
func TestRunbooksLeadFromASymptomToItsEndOnAnInstalledPackage(t *testing.T) {
	needRelease(t)
	h := startHost(t, debian(t))
	must(t, "docker", "cp", released(t, packagings[0].pattern), h.id+":/tmp/ringway.deb")
	must(t, "docker", "cp", buildEcho(t), h.id+":/tmp/echo")
	h.run(packagings[0].upgrade)
	h.configure()
	h.background("echo", "/tmp/echo -addr 127.0.0.1:9000 -delay 200ms")
	h.unit("ringway-relay")
	h.unit("ringway-worker")
	h.await("a request is answered", request+" --fail")

	tree, err := os.ReadFile("../../docs/operations/start-here.md")
	if err != nil {
		t.Fatal(err)
	}
	restart := func(unit string) func() {
		return func() {
			h.run("kill $(cat /tmp/" + unit + ".pid)")
			h.await(unit+" has ended", "! kill -0 $(cat /tmp/"+unit+".pid)")
			h.unit(unit)
			h.await(unit+" answers", unit+" health")
		}
	}
	echo := func() { h.background("echo", "/tmp/echo -addr 127.0.0.1:9000 -delay 200ms") }
	for name, s := range map[string]struct {
		symptom
		begin, start func() // of a process that the fault, or the remedy, starts
	}{
		"requests take longer than they may": {symptom{
			fault: "echo RINGWAY_REQUEST_TIMEOUT=50ms >>/etc/ringway/relay.env", seen: request + " | grep timeout", row: "504 `timeout`", page: "timeouts",
			shows: "request-timeout 50ms", remedy: "sed -i /REQUEST_TIMEOUT/d /etc/ringway/relay.env", over: request + " --fail",
		}, restart("ringway-relay"), restart("ringway-relay")},
		"more requests than the limit": {symptom{
			fault: "echo RINGWAY_MAX_IN_FLIGHT=1 >>/etc/ringway/relay.env", seen: "for i in 1 2 3 4 5 6; do " + request + " & done | grep overloaded", row: "503 `overloaded`", page: "overloaded",
			shows: "billing", remedy: "sed -i /MAX_IN_FLIGHT/d /etc/ringway/relay.env", over: "! (for i in 1 2 3 4 5 6; do " + request + " & done | grep overloaded)",
		}, restart("ringway-relay"), restart("ringway-relay")},
		"a service without a check does not run": {symptom{
			fault: "cp /etc/ringway/worker.env /tmp/; sed -i 's/;check=.*//' /etc/ringway/worker.env; kill $(cat /tmp/echo.pid)", seen: request + " | grep upstream_failed", row: "502 `upstream_failed`", page: "errors",
			shows: "worker-1", remedy: "cat /tmp/worker.env >/etc/ringway/worker.env", over: request + " --fail",
		}, restart("ringway-worker"), func() { echo(); restart("ringway-worker")() }},
		"the relay does not run": {symptom{
			fault: "kill $(cat /tmp/ringway-relay.pid)", seen: "! " + request, row: "no connection, or it is refused", page: "no-relay-up",
			shows: "connection refused", over: "ringway-relay health --ready | grep -x ready",
		}, nil, func() { h.unit("ringway-relay") }},
		"a misspelt service": {symptom{
			seen: "curl --silent --header 'Ringway-Service: biling' http://127.0.0.1:7410/ | grep unknown_service", row: "404 `unknown_service`", page: "no-endpoint",
			about: "biling", shows: "did you mean billing?", over: request + " --fail",
		}, nil, nil},
		"the service does not run": {symptom{
			fault: "kill $(cat /tmp/echo.pid)", seen: request + " | grep no_endpoint", row: "503 `no_endpoint`", page: "no-endpoint",
			shows: "endpoints  0", over: "ringway-relay services billing | grep active",
		}, nil, echo},
		"the check of a service fails": {symptom{
			fault: "kill $(cat /tmp/echo.pid)", seen: "grep 'service is unhealthy' /tmp/ringway-worker.log && ringway-worker services | grep unhealthy", row: "`service is unhealthy`", page: "service-unhealthy",
			shows: "connection refused", over: "ringway-worker services | grep offered",
		}, nil, echo},
		"a drain was forgotten": {symptom{
			fault: "ringway-worker drain", seen: "ringway-relay members | grep draining", row: "a member is there and gets no requests", page: "drain-forgotten",
			shows: "worker-1", remedy: "ringway-worker undrain", over: "! ringway-relay members --state draining | grep worker-1",
		}, nil, nil},
		"a certificate without its key": {symptom{
			fault: "install -m 640 -g ringway /root/worker.crt /etc/ringway/relay.crt", seen: "grep 'certificates not replaced' /tmp/ringway-relay.log", row: "`certificates not replaced`", page: "certificates",
			shows: "worker-1", remedy: "install -m 640 -g ringway /root/relay.crt /etc/ringway/relay.crt", over: "ringway-relay tls info /etc/ringway/relay.crt | grep relay-1",
		}, nil, nil},
		"a worker has died": {symptom{
			fault: "kill -9 $(cat /tmp/ringway-worker.pid)", seen: "ringway-relay members | grep failed", row: "a member is missing, or comes and goes", page: "member-down",
			shows: "worker-1", over: "ringway-relay members | grep 'worker-1.*alive'",
		}, nil, func() { h.unit("ringway-worker") }},
	} {
		t.Run(name, func(t *testing.T) {
			h := host{t, h.id}
			if s.fault != "" {
				h.run(s.fault)
			}
			if s.begin != nil {
				s.begin()
			}
			h.await("an operator sees it", s.seen)
			var row string
			for line := range strings.Lines(string(tree)) {
				if strings.HasPrefix(line, "| ") && strings.Contains(line, s.row) {
					row = line
					break
				}
			}
			if !strings.Contains(row, "("+s.page+".md)") {
				t.Errorf("%q leads to %q, not to %s", s.row, row, s.page)
			}
			out, _ := h.try(firstCommand(t, s.symptom)) // some fail, with the reason
			t.Logf("%s", out)
			if !strings.Contains(out, s.shows) {
				t.Errorf("the first command of %s does not show %q:\n%s", s.page, s.shows, out)
			}
			if s.remedy != "" {
				h.run(s.remedy)
			}
			if s.start != nil {
				s.start()
			}
			h.await("it is over", s.over)
			h.await("requests are answered", request+" --fail")
		})
	}
}

// firstCommand returns the command below that heading of a runbook.
func firstCommand(t *testing.T, s symptom) string {
	t.Helper()
	page := s.page
	text, err := os.ReadFile(filepath.Join("../../docs/operations", page+".md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## First command\n")
	_, rest, _ = strings.Cut(rest, "```sh\n")
	command, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("%s has no first command", page)
	}
	return strings.NewReplacer("SERVICE", cmp.Or(s.about, "billing"), "WORKER", "worker-1").Replace(command)
}
