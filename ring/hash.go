package ring

import "github.com/cespare/xxhash/v2"

// Hash returns the XXH64 of key under seed. It does not allocate.
//
// XXH64 is fast and well spread, not cryptographic: whoever chooses the keys can
// choose where they land.
func Hash(key string, seed uint64) uint64 {
	if seed == 0 {
		return xxhash.Sum64String(key)
	}
	var digest xxhash.Digest
	digest.ResetWithSeed(seed)
	_, _ = digest.WriteString(key) // documented never to fail
	return digest.Sum64()
}
