//go:build !race

package latency

const raceDetector = false
