package affinity

import "fmt"

// IndexSource says where a relay's index comes from.
type IndexSource string

const (
	// IndexRank is the place among the affine relays in ring order. It depends on
	// nothing but the members, and one relay more or less shifts the ranges of all.
	IndexRank IndexSource = "rank"

	// IndexSlot is the number of the slot that the relay holds (see [Slots]). A relay
	// that is replaced disturbs its own range only; choose it from some twenty relays up.
	IndexSlot IndexSource = "slot"
)

// ParseIndexSource accepts "rank" and "slot", and "" for the default, rank.
func ParseIndexSource(text string) (IndexSource, error) {
	switch source := IndexSource(text); source {
	case "":
		return IndexRank, nil
	case IndexRank, IndexSlot:
		return source, nil
	}
	return "", fmt.Errorf("affinity: index source %q: allowed are %q and %q", text, IndexRank, IndexSlot)
}
