package selection

import (
	"math"
	"time"

	"github.com/ringway/ringway/internal/outlier"
)

const (
	decayStepsPerUnit = 16
	decayLimit        = 16 // e^-16 is 1e-7, the resolution of a float32
)

// decayTable holds e^-x at x = i/16 and the difference to the next entry. With linear
// interpolation the error stays below 0.0005, and a lookup costs a tenth of math.Exp.
var decayTable = func() (t [decayLimit * decayStepsPerUnit]struct{ value, slope float32 }) {
	at := func(i int) float64 { return math.Exp(-float64(i) / decayStepsPerUnit) }
	for i := range t {
		t[i].value, t[i].slope = float32(at(i)), float32(at(i+1)-at(i))
	}
	return t
}()

// decay returns e^(-steps/16) for steps >= 0.
func decay(steps float32) float32 {
	i := uint(steps)
	if i >= uint(len(decayTable)) {
		return 0
	}
	e := &decayTable[i]
	return e.value + e.slope*(steps-float32(i))
}

// Time constants of the score, as factors from ticks to steps of decay.
const (
	perLatencyTau = decayStepsPerUnit / (6 * ticksPerSecond)  // weight of latency samples
	perReportsTau = decayStepsPerUnit / (3 * ticksPerSecond)  // weight of reports in their average
	perBadAge     = 1 / (5 * ticksPerSecond)                  // bad estimates, on a straight line
	perRelaxTau   = decayStepsPerUnit / (10 * ticksPerSecond) // sends, success
	perCountTau   = decayStepsPerUnit / (float32(outlier.Memory/time.Second) * ticksPerSecond)
	perReportTau  = decayStepsPerUnit / (0.1 * ticksPerSecond) // a reported load, towards its average
)
