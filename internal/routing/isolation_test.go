package routing_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/routing"
	"github.com/ringway/ringway/membership/identity"
)

// faulty is a log that panics at lines about the policy of one service: a fault in the middle
// of computing a route.
type faulty struct {
	slog.Handler
	service string
}

func (f faulty) Handle(ctx context.Context, line slog.Record) error {
	line.Attrs(func(a slog.Attr) bool {
		if a.Key == "service" && a.Value.String() == f.service && strings.Contains(line.Message, "policy") {
			panic("the log of " + f.service)
		}
		return true
	})
	return f.Handler.Handle(ctx, line)
}

func TestAServiceThatCannotBeRoutedKeepsItsRouteAndCostsNoOther(t *testing.T) {
	t.Parallel()
	self := join(t, "r1", identity.RoleRelay, nil)
	r := watch(t, self, func(c *routing.Config) {
		c.Logger = slog.New(faulty{c.Logger.Handler(), "bad"})
	})
	good, bad := join(t, "w1", identity.RoleWorker, self), join(t, "w2", identity.RoleWorker, self)
	echo := advertise.Service{Name: "echo", Address: backend(t)}
	broken := advertise.Service{Name: "bad", Address: backend(t)}
	offer(t, good, echo)
	offer(t, bad, broken)
	procs.Await(t, "both are connected", func() bool { return r.connected("echo", 1, 1)() && r.connected("bad", 1, 1)() })

	before := r.of("bad")
	broken.Policy = "retry=sometimes"
	offer(t, bad, broken)
	failed := func() int { return r.counters("ringway_relay_route_updates_total")["failed"] }
	procs.Await(t, "the failure is counted", func() bool { return failed() > 0 })
	echo.Weight = 20
	offer(t, good, echo, advertise.Service{Name: "more", Address: echo.Address})
	procs.Await(t, "the other services are routed", func() bool {
		return r.connected("more", 1, 1)() && r.of("echo").Range[0].Endpoint.Weight == 20
	})
	if r.of("bad") != before {
		t.Error("the service that cannot be routed has another route")
	}
	for _, want := range []string{`service=bad`, "the log of bad", "routing.(*strategyResolver).policy"} { // the last is from the stack
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, r.log.String())
		}
	}

	broken.Policy = "retry=never"
	offer(t, bad, broken)
	procs.Await(t, "an offer without the fault is routed", func() bool { return r.of("bad").Policy.Retry == advertise.RetryNever })
}

func TestAFaultOutsideOfAServiceCostsAnUpdateAndNotTheProcess(t *testing.T) {
	t.Parallel()
	full, empty := join(t, "r1", identity.RoleRelay, nil), join(t, "r1", identity.RoleRelay, nil)
	offer(t, join(t, "w1", identity.RoleWorker, full), advertise.Service{Name: "echo", Address: backend(t)})
	procs.Await(t, "the service and both views", func() bool {
		return slices.Contains(slices.Collect(full.catalogue.View().Services()), "echo") && empty.catalogue.View().Members() != nil
	})
	show := make(views)
	reg := prometheus.NewRegistry()
	var log logtest.Log
	router := route(t, full, func(c *routing.Config) {
		c.Catalogue, c.Registerer, c.Logger = show, reg, slog.New(slog.NewTextHandler(&log, nil))
		c.Vanished = func(s *routing.Service) { panic("forgot " + s.Name) }
	})
	known := func() bool {
		_, known := router.Service("echo")
		return known
	}
	show <- full.catalogue.View()
	procs.Await(t, "a route", known)
	show <- empty.catalogue.View()
	procs.Await(t, "the fault is counted", func() bool {
		return logtest.Series(t, reg, "ringway_relay_route_updates_total")["failed"] == 1
	})
	show <- full.catalogue.View()
	procs.Await(t, "a route again", known)
	for _, want := range []string{"forgot echo", "routing.(*Router).update", "report it"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}
