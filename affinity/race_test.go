//go:build race

package affinity_test

// sweepStride thins the exhaustive sweeps under the race detector, which slows them about
// tenfold, and more with coverage: every 11th number of workers, starting elsewhere for
// each number of relays, so that all residues are still covered. The code under test has no
// goroutines; without the detector every case runs.
const sweepStride = 11
