//go:build !race

package strategy

const raceDetector = false
