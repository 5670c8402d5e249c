package selection

import "sort"

// aliasTable draws an index in proportion to its weight in constant time
// (Vose's form of Walker's alias method).
type aliasTable struct {
	slots []aliasSlot
	// cumulative[i] is the sum of the weights of 0..i. drawOther uses it for the
	// second draw of a pair.
	cumulative []float64
}

type aliasSlot struct {
	keep  uint32 // own share of the slot, in units of 2^-32; the rest belongs to alias
	alias uint32
}

// newAliasTable builds the table in O(n). All weights must be positive.
func newAliasTable(weights []float64) aliasTable {
	n := len(weights)
	t := aliasTable{slots: make([]aliasSlot, n), cumulative: make([]float64, n)}
	total := 0.0
	for i, w := range weights {
		total += w
		t.cumulative[i] = total
	}
	scaled := make([]float64, n)
	var small, large []int
	for i, w := range weights {
		scaled[i] = w / total * float64(n)
		if scaled[i] < 1 {
			small = append(small, i)
		} else {
			large = append(large, i)
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		t.slots[s] = aliasSlot{keep: uint32(scaled[s] * (1 << 32)), alias: uint32(l)}
		scaled[l] -= 1 - scaled[s]
		if scaled[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	// Apart from rounding, the remaining shares are 1. Each of these slots is its own
	// alias, so the value of keep does not matter.
	for _, i := range append(small, large...) {
		t.slots[i] = aliasSlot{alias: uint32(i)}
	}
	return t
}

// draw turns 32 random bits into an index: the high part of the product selects
// the slot, the low part selects between the slot's own index and its alias.
func (t *aliasTable) draw(random uint32) int {
	product := uint64(random) * uint64(len(t.slots))
	i := int(product >> 32)
	if s := t.slots[i]; uint32(product) >= s.keep {
		return int(s.alias)
	}
	return i
}

// drawOther draws from all indices except not, in proportion to weight. The table
// must hold at least two indices.
func (t *aliasTable) drawOther(not int, random uint64) int {
	n := len(t.cumulative)
	before := 0.0
	if not > 0 {
		before = t.cumulative[not-1]
	}
	rest := t.cumulative[n-1] - (t.cumulative[not] - before)
	x := unit(random) * rest
	if x >= before {
		x += t.cumulative[not] - before
	}
	i := sort.Search(n, func(i int) bool { return t.cumulative[i] > x })
	// Because of rounding the result can be not itself or past the end.
	if i >= n {
		i = n - 1
	}
	if i == not {
		if i++; i == n {
			i = not - 1
		}
	}
	return i
}

// unit maps random bits to [0, 1).
func unit(random uint64) float64 { return float64(random>>11) / (1 << 53) }
