package affinity_test

import (
	"testing"

	"github.com/ringway/ringway/affinity"
)

// HS-D1, HS-D2.
func TestTiersOfPlaces(t *testing.T) {
	fra := affinity.Place{Datacenter: "fra", Region: "eu"}
	for _, c := range []struct {
		a, b affinity.Place
		want affinity.Tier
		text string
	}{
		{fra, fra, affinity.SameDatacenter, "same_dc"},
		{fra, affinity.Place{Datacenter: "fra"}, affinity.SameDatacenter, "same_dc"},
		{fra, affinity.Place{Datacenter: "fra", Region: "us"}, affinity.SameDatacenter, "same_dc"},
		{fra, affinity.Place{Datacenter: "ams", Region: "eu"}, affinity.SameRegion, "same_region"},
		{fra, affinity.Place{Region: "eu"}, affinity.SameRegion, "same_region"},
		{affinity.Place{Region: "eu"}, affinity.Place{Region: "eu"}, affinity.SameRegion, "same_region"},
		{fra, affinity.Place{Datacenter: "nyc", Region: "us"}, affinity.Global, "global"},
		{fra, affinity.Place{}, affinity.Global, "global"},
		{affinity.Place{}, affinity.Place{}, affinity.Global, "global"},
		{affinity.Place{Datacenter: "fra"}, affinity.Place{Region: "fra"}, affinity.Global, "global"},
	} {
		if got := c.a.Tier(c.b); got != c.want || got.String() != c.text || c.b.Tier(c.a) != got {
			t.Errorf("%+v and %+v: %v, want %s both ways", c.a, c.b, got, c.text)
		}
	}
}
