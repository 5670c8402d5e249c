package fleet

// finagle is Twitter's deterministic aperture (DeterministicAperture.scala): clients and
// servers divide a circle each into equal arcs, and a client of N arcs sends to the servers
// under its arcs, in proportion to the overlap. N is such that at least aperture servers
// fit. Without an aperture, N keeps the minimums of the size. Exact integers in place of
// the original's floating point: the circle has R·W points.
func finagle(aperture int) func(*Graph, Size, Fleet) error {
	return func(g *Graph, s Size, f Fleet) error {
		relays, workers := byAddress(f.Relays, RelayID), byAddress(f.Workers, WorkerID)
		r, w := len(relays), len(workers)
		turns := (aperture*r + w - 1) / w
		if aperture == 0 {
			turns = max(s.PerWorker, (s.PerRelay*r+w-1)/w)
		}
		width := min(r, turns) * w // in points; a server's arc has r
		for i, relay := range relays {
			from := i * w
			for at := from; at < from+width; {
				next := min(from+width, (at/r+1)*r)
				g.Connect(relay, workers[at/r%w], float64(next-at)/float64(width))
				at = next
			}
		}
		return nil
	}
}
