package ring

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Node is a member with a weight.
type Node struct {
	ID     string  // stable identity, not empty
	Weight float64 // relative share of the keys: positive and finite
}

// Rendezvous ranks nodes for a key by weighted rendezvous hashing: highest random
// weight (Thaler and Ravishankar, 1998) with the score -w/ln(h) (Schindelhauer and
// Schomaker, 2005), where h in (0,1) is the hash of the pair. The expected share of a
// node is exactly its share of the weights, and a node that leaves moves only its own
// keys. (Multiplying the hash by the weight, a common shortcut, does not give
// proportional shares: two nodes with weights 2:1 get 3:1.)
//
// A Rendezvous is immutable and safe for concurrent use. With equal weights nodes are
// compared by their integer hashes. With unequal weights they are compared by
// math.Log, whose last bit may differ between processor architectures; the difference
// can matter only where two scores agree to about one part in 10^15.
type Rendezvous struct {
	nodes   []Node // sorted by ID
	uniform bool   // all weights equal: scores are not needed
}

// NewRendezvous checks and copies nodes; their order does not matter. An empty list
// is valid. NewRendezvous refuses a weight that is not positive and finite, an empty
// id and a repeated id.
func NewRendezvous(nodes []Node) (*Rendezvous, error) {
	r := &Rendezvous{nodes: slices.Clone(nodes), uniform: true}
	slices.SortFunc(r.nodes, func(a, b Node) int { return strings.Compare(a.ID, b.ID) })
	for i, node := range r.nodes {
		if node.ID == "" {
			return nil, errors.New("ring: the name of a member is empty: give every node a stable id")
		}
		if i > 0 && r.nodes[i-1].ID == node.ID {
			return nil, fmt.Errorf("ring: a member is named twice: %q: list each node once", node.ID)
		}
		// Negated, so that NaN is refused too.
		if !(node.Weight > 0) || math.IsInf(node.Weight, 1) {
			return nil, fmt.Errorf("ring: weight %v of node %q: a weight must be positive and finite; leave the node out to give it nothing",
				node.Weight, node.ID)
		}
		if node.Weight != r.nodes[0].Weight {
			r.uniform = false
		}
	}
	return r, nil
}

// ranked is a node with its score for one key. Nodes are compared by score, then by
// hash, then by id, so that equal and unequal weights share one definition of order.
type ranked struct {
	score float64
	hash  uint64
	index int // in Rendezvous.nodes, which is sorted by id
}

// ahead reports whether a ranks before b.
func (a ranked) ahead(b ranked) bool {
	if a.score != b.score {
		return a.score > b.score
	}
	if a.hash != b.hash {
		return a.hash > b.hash
	}
	return a.index < b.index
}

func (r *Rendezvous) rank(index int, seed uint64) ranked {
	node := &r.nodes[index]
	out := ranked{hash: Hash(node.ID, seed), index: index}
	if !r.uniform {
		out.score = -node.Weight / math.Log(unit(out.hash))
	}
	return out
}

// rankAhead is rank with a shortcut: it also reports whether the node ranks before
// worst. Most nodes do not, and a bound excludes them without a logarithm: because
// -ln(h) ≥ 1-h, no score exceeds w/(1-h). The margin covers rounding.
func (r *Rendezvous) rankAhead(index int, seed uint64, worst ranked) (ranked, bool) {
	const margin = 1 + 1e-9
	node := &r.nodes[index]
	out := ranked{hash: Hash(node.ID, seed), index: index}
	if !r.uniform {
		h := unit(out.hash)
		if node.Weight/(1-h)*margin < worst.score {
			return out, false
		}
		out.score = -node.Weight / math.Log(h)
	}
	return out, out.ahead(worst)
}

// unit maps the top 53 bits of a hash into the open interval (0,1). Every value except
// the lowest is exact. The result is never 0 or 1, for which the score is undefined.
func unit(hash uint64) float64 {
	return max(float64(hash>>11), 0.5) / (1 << 53)
}

// Top returns the n highest-ranked nodes for key, best first, or all nodes if there
// are fewer.
func (r *Rendezvous) Top(key string, n int) []string {
	n = min(n, len(r.nodes))
	if n <= 0 {
		return nil
	}
	seed := Hash(key, 0)
	var best []ranked
	// A short list is kept sorted while it fills; a long list is sorted at the end.
	const insertLimit = 32
	if n <= insertLimit {
		var buffer [insertLimit]ranked
		best = buffer[:0]
		for i := range r.nodes {
			var candidate ranked
			if len(best) < n {
				candidate = r.rank(i, seed)
			} else {
				var ahead bool
				if candidate, ahead = r.rankAhead(i, seed, best[n-1]); !ahead {
					continue
				}
				best = best[:n-1]
			}
			at := len(best)
			best = append(best, candidate)
			for ; at > 0 && candidate.ahead(best[at-1]); at-- {
				best[at] = best[at-1]
			}
			best[at] = candidate
		}
	} else {
		best = make([]ranked, len(r.nodes))
		for i := range r.nodes {
			best[i] = r.rank(i, seed)
		}
		slices.SortFunc(best, func(a, b ranked) int {
			if a.ahead(b) {
				return -1
			}
			return 1
		})
		best = best[:n]
	}
	out := make([]string, n)
	for i, b := range best {
		out[i] = r.nodes[b.index].ID
	}
	return out
}
