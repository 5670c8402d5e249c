package health

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/procs"
)

func TestProbesAreCountedByServiceAndResultUntilTheServiceIsForgotten(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	for name, address := range map[string]string{"chat": serve(t, func(conn *net.TCPConn) { hang(conn) }), "echo": procs.Refusing(t)} {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := New(Config{Name: name, Metrics: metrics, Check: Check{Kind: TCP, Address: address, Interval: time.Hour, Timeout: time.Minute, StartGrace: noGrace},
			OnChange: func(Status) { cancel() }})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	}
	const names, echo = "ringway_worker_health_checks_total ringway_worker_service_healthy", `
		# HELP ringway_worker_health_checks_total Probes of the services of this worker, by result: success, refused, unresolved, timeout, untrusted (TLS: another certificate than expected), not_h2 (no TLS, or without HTTP/2), exhausted (this process lacks descriptors, ports or memory: no verdict), closed, garbage (another protocol), status (an answer that is no success), not_serving, unknown_service, no_health_service, other.
		# TYPE ringway_worker_health_checks_total counter
		%s ringway_worker_health_checks_total{result="refused",service="echo"} 1
		# HELP ringway_worker_service_healthy 1 while a service is healthy and therefore offered, 0 while it is not.
		# TYPE ringway_worker_service_healthy gauge
		%s ringway_worker_service_healthy{service="echo"} 0
	`
	compare := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), strings.Fields(names)...); err != nil {
			t.Error(err)
		}
	}
	compare(fmt.Sprintf(echo, "ringway_worker_health_checks_total{result=\"success\",service=\"chat\"} 1\n", "ringway_worker_service_healthy{service=\"chat\"} 1\n"))
	metrics.Forget("chat")
	compare(fmt.Sprintf(echo, "", ""))
	if n, err := testutil.GatherAndCount(registry, "ringway_worker_health_check_duration_seconds"); n != 1 || err != nil {
		t.Errorf("%d series of durations, %v", n, err)
	}
	if problems, err := testutil.GatherAndLint(registry); len(problems) > 0 || err != nil {
		t.Errorf("%v, %v", problems, err)
	}
}
