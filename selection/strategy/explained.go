package strategy

// PickExplained is Pick and tells how it went: the decision's Winner and Err are what
// Pick returns. It counts as a pick by its result; what slots measures of its scans is
// left out, and nobody is handed over as stale. It allocates: it is for debugging.
func (s *Strategy) PickExplained(r Request) Decision {
	d := s.Explain(r)
	s.results[resultOf(d.Err)].Inc()
	return d
}
