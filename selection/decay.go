package selection

import "math"

const (
	decayStepsPerUnit = 16
	decayLimit        = 16 // e^-16 is 1e-7, the resolution of a float32
)

// decayTable holds e^-x at x = i/16. With linear interpolation the error stays
// below 0.0005, and a lookup costs a tenth of math.Exp.
var decayTable = func() (t [decayLimit*decayStepsPerUnit + 2]float32) {
	for i := range t {
		t[i] = float32(math.Exp(-float64(i) / decayStepsPerUnit))
	}
	return t
}()

// decay returns e^-x for x >= 0.
func decay(x float32) float32 {
	if x >= decayLimit {
		return 0
	}
	x *= decayStepsPerUnit
	i := int(x)
	low := decayTable[i]
	return low + (decayTable[i+1]-low)*(x-float32(i))
}

// Time constants of the score, as factors from ticks to e-folds.
const (
	perLatencyTau = 1 / (3 * ticksPerSecond)   // weight of a latency sample; bad estimates
	perRelaxTau   = 1 / (10 * ticksPerSecond)  // sends, success, failure counts
	perReportTau  = 1 / (0.1 * ticksPerSecond) // a reported load, towards its average
)

const (
	// reportExpiry, 10 s: answers without reports make an older report void.
	reportExpiry = int32(10_000_000_000 >> tickShift)
	// staleAge, 1 s: an older latency estimate gives way to a better sample.
	staleAge = int32(1_000_000_000 >> tickShift)
	// sentHold, 100 ms: sends start to fade when none was made for so long.
	sentHold = int32(100_000_000 >> tickShift)
)
