package selection

import (
	"math"
	"sync/atomic"
)

// winner is the running winner score W, float32 bits. Racing picks may lose a
// step; W is an average of some sixty picks and does not mind.
type winner struct{ bits atomic.Uint32 }

func (w *winner) load() float32 { return math.Float32frombits(w.bits.Load()) }

// follow moves W by a 64th of the way to the score of the pick that won. Steps
// below 0.1 % of W are skipped, to keep the cache line shared while all is calm.
func (w *winner) follow(old, score float32) {
	if old == 0 {
		w.bits.Store(math.Float32bits(score))
		return
	}
	if step := (score - old) / 64; step > old/1000 || step < -old/1000 {
		w.bits.Store(math.Float32bits(old + step))
	}
}
