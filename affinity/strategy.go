package affinity

import "fmt"

// Strategy says how workers are given to relays.
type Strategy string

const (
	// Projection gives every relay a run of the worker ring. Ranges differ by at most one
	// worker and the weights have a closed form.
	Projection Strategy = "projection"

	// Rendezvous gives every worker the relays that hash best with it. A member that joins
	// or leaves moves its own connections only, which is the least possible; ranges differ
	// in size, and the weights that make up for it are found by iteration. Choose it where
	// relays come and go and hold no stable slots.
	Rendezvous Strategy = "rendezvous"
)

// ParseStrategy accepts "projection" and "rendezvous", and "" for the default, projection.
func ParseStrategy(text string) (Strategy, error) {
	switch strategy := Strategy(text); strategy {
	case "":
		return Projection, nil
	case Projection, Rendezvous:
		return strategy, nil
	}
	return "", fmt.Errorf("affinity: strategy %q: allowed are %q and %q", text, Projection, Rendezvous)
}
