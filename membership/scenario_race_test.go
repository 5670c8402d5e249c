//go:build race

package membership

// raceEnabled lets a history choose a smaller cluster: the race detector makes
// one of 200 members take minutes.
const raceEnabled = true
