package latency

import (
	"fmt"

	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
)

// Property is something promised, and what was measured: the worst case.
type Property struct {
	Name  string  `json:"property"`
	Value float64 `json:"value"`
	// Bound is the most that is allowed, or the least if AtLeast is set.
	Bound   float64 `json:"bound"`
	AtLeast bool    `json:"at_least,omitempty"`
	// Where is the worst cell, "" for means.
	Where string `json:"where,omitempty"`
}

// Holds reports whether the bound is kept; nothing measured keeps no bound.
func (p Property) Holds() bool {
	if p.AtLeast {
		return p.Value >= p.Bound
	}
	return p.Value <= p.Bound
}

func (p Property) String() string {
	relation := "≤"
	if p.AtLeast {
		relation = "≥"
	}
	text := fmt.Sprintf("%s: %.4g, promised %s %.4g", p.Name, p.Value, relation, p.Bound)
	if p.Where != "" {
		text += " (" + p.Where + ")"
	}
	return text
}

// Judge measures one policy by what is promised of ours. A property whose cells were not run
// is left out.
func Judge(rows []Row, subject string) []Property {
	j := judge{rows: rows, subject: subject}
	j.mean(Property{Name: "geometric mean of p99 over the omniscient", Bound: 1.15}, func(r *Row) float64 { return r.P99Ratio })
	peak := make(map[string]float64)
	for i := range rows {
		if rows[i].Policy == policy.PeakEWMA.Name {
			peak[rows[i].cell().String()] = rows[i].P99
		}
	}
	j.worst(Property{Name: "p99 over peak-ewma", Bound: 1.01},
		func(r *Row) bool { return r.Compared && peak[r.cell().String()] > 0 },
		func(r *Row) float64 { return r.P99 / peak[r.cell().String()] })
	in := func(s queueing.Scenario) func(*Row) bool {
		return func(r *Row) bool { return r.Scenario == s.Name }
	}
	j.worst(Property{Name: "share to a worker that fails fast, over fair", Bound: 0.1},
		in(queueing.FailFast), func(r *Row) float64 { return r.VictimMax })
	j.worst(Property{Name: "evictions at 1 % background failures", Bound: 0},
		in(queueing.Background), func(r *Row) float64 { return float64(r.Evictions) })
	j.worst(Property{Name: "share of a worker in the 10 s after it recovers, over fair", Bound: 0.7, AtLeast: true},
		in(queueing.Recovery), func(r *Row) float64 { return r.VictimMean })
	j.worst(Property{Name: "errors at 110 % load, beyond the unavoidable", Bound: 0.01},
		in(queueing.Overload), func(r *Row) float64 { return r.ExcessErrors })
	return j.properties
}

type judge struct {
	rows       []Row
	subject    string
	properties []Property
}

func (j *judge) mean(p Property, value func(*Row) float64) {
	counts := func(r *Row) bool { return r.Compared && r.Policy == j.subject }
	for i := range j.rows {
		if counts(&j.rows[i]) {
			p.Value = geometricMean(j.rows, counts, value)
			j.properties = append(j.properties, p)
			return
		}
	}
}

func (j *judge) worst(p Property, counts func(*Row) bool, value func(*Row) float64) {
	for i := range j.rows {
		r := &j.rows[i]
		if r.Policy != j.subject || !counts(r) {
			continue
		}
		v := value(r)
		if p.Where == "" || p.AtLeast && v < p.Value || !p.AtLeast && v > p.Value {
			p.Value, p.Where = v, r.cell().String()
		}
	}
	if p.Where != "" {
		j.properties = append(j.properties, p)
	}
}
