//go:build !race

package surge

const raceDetector = false
