//go:build !race

package validation

const raceDetector = false
