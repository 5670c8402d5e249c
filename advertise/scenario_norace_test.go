//go:build !race

package advertise

const raceEnabled = false
