//go:build race

package strategy

// raceDetector reports that the tests run with the race detector, which
// slows them about tenfold, and under which crypto/rand allocates.
const raceDetector = true
