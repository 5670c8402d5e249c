//go:build race

package clusterscript

import "runtime"

// Raced says that the race detector runs, which costs five times as much.
const Raced = true

// oneProcessor keeps the race detector from crashing the tests. Go 1.26 gives all timers of a
// synctest bubble one context of the detector. Each goroutine that receives from a ticker that
// has expired uses this context, and two at a time on two processors corrupt the context.
// Tickers of memberlist expire while their goroutines wait for something else. The order of
// goroutines stays varied, because the detector's scheduler chooses the next one at random.
func oneProcessor() {
	if runtime.GOMAXPROCS(0) > 1 {
		runtime.GOMAXPROCS(1)
	}
}
