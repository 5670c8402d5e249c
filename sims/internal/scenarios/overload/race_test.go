//go:build race

package overload

// raceDetector slows simulations about tenfold; the code that it could find fault with is in a
// test of its own.
const raceDetector = true
