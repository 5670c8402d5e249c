//go:build race

package memnet

import (
	"runtime"
	"time"
)

// oneProcessor keeps the race detector from crashing tests in a bubble. Go 1.26 gives all timers of
// a synctest bubble one context of the detector. Each goroutine that receives from a ticker that
// has expired uses this context, and two at a time on two processors corrupt the context.
// Tickers of memberlist expire while their goroutines wait for something else. The order of
// goroutines stays varied, because the detector's scheduler chooses the next one at random.
func oneProcessor() {
	if inBubble := time.Now().Year() < 2020; inBubble && runtime.GOMAXPROCS(0) > 1 {
		runtime.GOMAXPROCS(1)
	}
}
