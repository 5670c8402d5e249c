//go:build !race

package failover

const raceDetector = false
