package health

// verdict turns the results of probes into healthy or unhealthy. It knows no
// clock: the caller says whether the start is still forgiven.
type verdict struct {
	rise, fall int

	succeeded bool // at least once
	healthy   bool
	decided   bool // healthy means something
	contrary  int  // results in a row that contradict healthy
}

// observe takes the result of one probe and reports whether the verdict changed,
// or was reached for the first time. Before the first success a failure decides
// only when it is not forgiven, and the first success always does: an instance
// that is up must be offered at once.
func (v *verdict) observe(success, forgiven bool) (changed bool) {
	if !v.succeeded {
		changed = success || !v.decided && !forgiven
		v.succeeded, v.healthy, v.decided = success, success, v.decided || changed
		return changed
	}
	if success == v.healthy {
		v.contrary = 0
		return false
	}
	v.contrary++
	if success && v.contrary < v.rise || !success && v.contrary < v.fall {
		return false
	}
	v.healthy, v.contrary = success, 0
	return true
}
