package relay

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/internal/admin"
	"github.com/ringway/ringway/internal/relay/routing"
)

// PlanAnswer is the whole plan of a service, as every relay computes it. Members that
// have vanished may still have their place in it; they are marked, and what is
// counted is without them.
type PlanAnswer struct {
	Service string `json:"service"`
	// Strategy is the one in use; Fallback says why it is not the one that was asked
	// for.
	Strategy    affinity.Strategy    `json:"strategy"`
	Fallback    string               `json:"fallback,omitempty"`
	IndexSource affinity.IndexSource `json:"index_source"`

	Relays []PlannedRelay `json:"relays"` // by index
	// Absent are the members of the plan that have vanished.
	Absent AbsentMembers `json:"absent"`

	RelaysPerWorker map[string]int `json:"relays_per_worker"`
	Coverage        Coverage       `json:"coverage"`
	Connections     int            `json:"connections"`
}

// PlannedRelay is one affine relay and what it connects to.
type PlannedRelay struct {
	Relay   string          `json:"relay"`
	Index   int             `json:"index"`
	Absent  bool            `json:"absent,omitempty"`
	Range   string          `json:"range,omitempty"` // empty with rendezvous
	Workers []PlannedWorker `json:"workers"`
}

// PlannedWorker is a worker in the range of a relay.
type PlannedWorker struct {
	Worker string  `json:"worker"`
	Weight float64 `json:"weight"`
	Absent bool    `json:"absent,omitempty"`
}

// AbsentMembers are ids, in the order of the plan.
type AbsentMembers struct {
	Relays  []string `json:"relays"`
	Workers []string `json:"workers"`
}

// Coverage counts connections from both sides.
type Coverage struct {
	RelaysPerWorker MinMax `json:"relays_per_worker"`
	WorkersPerRelay MinMax `json:"workers_per_relay"`
}

// MinMax is the least and the greatest of some counts, 0 of none.
type MinMax struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

func (r *Relay) showPlan(w http.ResponseWriter, _ *http.Request, s *routing.Service) {
	route := s.Route()
	if route.Plan == nil {
		admin.WriteError(w, http.StatusServiceUnavailable, nothingToPlan(s.Name))
		return
	}
	answer, err := describePlan(route)
	if err != nil {
		admin.WriteError(w, http.StatusInternalServerError, err.Error())
		return
	}
	answer.IndexSource = r.indexSource()
	admin.WriteJSON(w, http.StatusOK, answer)
}

func nothingToPlan(service string) string {
	return fmt.Sprintf("service %q has no endpoint that takes requests, so there is nothing to plan", service)
}

func (r *Relay) indexSource() affinity.IndexSource {
	return cmp.Or(r.cfg.Plans.IndexSource, affinity.IndexRank)
}

func describePlan(route *routing.Route) (*PlanAnswer, error) {
	plan := route.Plan
	a := &PlanAnswer{
		Service: plan.Service(), Strategy: plan.Strategy(), Fallback: plan.Fallback(),
		Absent: AbsentMembers{[]string{}, []string{}}, RelaysPerWorker: map[string]int{},
	}
	for _, worker := range plan.Workers() {
		if route.WorkerAbsent(worker) {
			a.Absent.Workers = append(a.Absent.Workers, worker)
		} else {
			a.RelaysPerWorker[worker] = 0
		}
	}
	var perRelay []int
	for i, relay := range plan.Affine() {
		planned, err := describeRelay(route, i)
		if err != nil {
			return nil, err
		}
		a.Relays = append(a.Relays, planned)
		if planned.Absent {
			a.Absent.Relays = append(a.Absent.Relays, relay)
			continue
		}
		connections := 0
		for _, w := range planned.Workers {
			if !w.Absent {
				connections++
				a.RelaysPerWorker[w.Worker]++
			}
		}
		a.Connections += connections
		perRelay = append(perRelay, connections)
	}
	perWorker := make([]int, 0, len(a.RelaysPerWorker))
	for _, n := range a.RelaysPerWorker {
		perWorker = append(perWorker, n)
	}
	a.Coverage = Coverage{RelaysPerWorker: minMax(perWorker), WorkersPerRelay: minMax(perRelay)}
	return a, nil
}

func describeRelay(route *routing.Route, index int) (PlannedRelay, error) {
	assignments, err := route.Plan.Assignments(index)
	if err != nil {
		return PlannedRelay{}, err
	}
	relay := route.Plan.Affine()[index]
	p := PlannedRelay{Relay: relay, Index: index, Absent: route.RelayAbsent(relay), Range: rangeText(route.Plan, index)}
	for _, a := range assignments {
		p.Workers = append(p.Workers, PlannedWorker{a.Worker, a.Weight, route.WorkerAbsent(a.Worker)})
	}
	return p, nil
}

func minMax(counts []int) MinMax {
	if len(counts) == 0 {
		return MinMax{}
	}
	return MinMax{slices.Min(counts), slices.Max(counts)}
}

// rangeText shows the ranges of the relay at index. It is empty with rendezvous, which
// has none, and where there is no such index.
func rangeText(plan *affinity.Plan, index int) string {
	ranges, _ := plan.Ranges(index)
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}
