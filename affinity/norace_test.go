//go:build !race

package affinity_test

const sweepStride = 1 // every case
