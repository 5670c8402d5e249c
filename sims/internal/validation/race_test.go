//go:build race

package validation

const raceDetector = true
