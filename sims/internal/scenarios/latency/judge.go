package latency

import (
	"fmt"
	"math"

	"github.com/ringway/ringway/sims/internal/policy"
	"github.com/ringway/ringway/sims/internal/queueing"
	"github.com/ringway/ringway/sims/internal/scenario"
)

// judge holds the rows of one policy against what is promised of ours.
func judge(r *scenario.Run, rows []row, judged string) {
	compared := func(row *row) bool { return row.compared && row.policy == judged }
	mean := geometricMean(rows, compared, func(row *row) float64 { return row.p99Ratio })
	cells := 0
	peak := map[string]float64{}
	for i := range rows {
		if compared(&rows[i]) {
			cells++
		}
		if rows[i].policy == policy.PeakEWMA.Name {
			peak[rows[i].cell.String()] = rows[i].p99
		}
	}
	if !math.IsNaN(mean) {
		r.Check(nearBest, mean, fmt.Sprintf("%d cells", cells))
	}
	for i := range rows {
		row := &rows[i]
		if row.policy != judged {
			continue
		}
		where := row.cell.String()
		if other, ok := peak[where]; ok && row.compared && judged != policy.PeakEWMA.Name {
			r.Check(notWorse, row.p99/other, where)
		}
		switch row.scenario.Name {
		case queueing.FailFast.Name:
			r.Check(failFast, row.victimMax, where)
		case queueing.Background.Name:
			r.Check(background, float64(row.evictions), where)
		case queueing.Recovery.Name:
			r.Check(recovered, row.victimMean, where)
		case queueing.Overload.Name:
			r.Check(overloaded, row.excessErrors, where)
		}
	}
	for _, name := range []string{nearBest, notWorse, failFast, background, recovered, overloaded, narrows} {
		r.Skip(name, "the cells for it are not among what is run")
	}
}
