//go:build !race

package retrystorm

const raceDetector = false
