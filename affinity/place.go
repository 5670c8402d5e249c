package affinity

import "fmt"

// Place says where a member runs. An empty field is unknown and matches nothing, not even
// another empty one.
type Place struct {
	Datacenter string
	Region     string
}

// Tier returns how near two places are.
func (p Place) Tier(other Place) Tier {
	switch {
	case p.Datacenter != "" && p.Datacenter == other.Datacenter:
		return SameDatacenter
	case p.Region != "" && p.Region == other.Region:
		return SameRegion
	}
	return Global
}

// String names the place by its narrowest known field.
func (p Place) String() string {
	switch {
	case p.Datacenter != "":
		return "datacenter " + p.Datacenter
	case p.Region != "":
		return "region " + p.Region
	}
	return "an unknown place"
}

// Tier says how near two members are, nearest first.
type Tier int

const (
	SameDatacenter Tier = iota
	SameRegion
	Global
)

// String returns same_dc, same_region or global.
func (t Tier) String() string {
	switch t {
	case SameDatacenter:
		return "same_dc"
	case SameRegion:
		return "same_region"
	case Global:
		return "global"
	}
	return fmt.Sprintf("tier(%d)", int(t))
}
